package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmroute/router"
)

// ServerConfig configures a Server. The zero ServerConfig is a server of this process alone.
type ServerConfig struct {
	// Cluster is the address on which the servers of other gateways connect, "10.0.0.1:6222"; "": there are none. It
	// does not reach clients: those are in their own processes.
	Cluster string
	// Peers are the cluster addresses of all gateways, this one's may be among them: each host:port, where the host may
	// be a name with several addresses, such as that of a headless service. Run looks names up again.
	Peers []string
	// User and Password are those of the cluster, the same for all gateways; "": none.
	User, Password string
	// TLS is for the connections between the servers; nil: they are not encrypted. Its Certificates are shown both ways,
	// so each needs one for servers and for clients. Those of others are checked by RootCAs, whichever side began, and
	// by ServerName: "" means the host of Peers, a name or an address, that is dialed; or if it is one name for all, that
	// name.
	TLS *tls.Config
	// Lookup is how often Run looks up the names of Peers. 0 means 5 s.
	Lookup time.Duration
	// Log gets the server's warnings and errors; nil: no log.
	Log *slog.Logger

	// resolve looks up a host; tests set it.
	resolve func(ctx context.Context, host string) ([]string, error)
}

// Server is a NATS server in this process. Make one with NewServer, give it to Config.Server, and call Run and Close.
type Server struct {
	cfg    ServerConfig
	opts   *server.Options
	server *server.Server
	routes []string // that the server has
}

// clusterName is the same for all: servers with other names do not connect.
const clusterName = "warmroute"

// NewServer starts a server.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Lookup < 0 {
		return nil, fmt.Errorf("nats: %w", &router.ConfigError{Field: "Lookup", Value: cfg.Lookup, Allowed: "0 or more"})
	}
	if cfg.Lookup == 0 {
		cfg.Lookup = 5 * time.Second
	}
	if cfg.resolve == nil {
		cfg.resolve = net.DefaultResolver.LookupHost
	}
	o := &server.Options{DontListen: true, NoSigs: true, NoLog: true, MaxPayload: 1 << 20, MaxPending: 8 << 20}
	if cfg.Cluster != "" {
		host, port, err := net.SplitHostPort(cfg.Cluster)
		n, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil {
			return nil, fmt.Errorf("nats: %w",
				&router.ConfigError{Field: "Cluster", Value: cfg.Cluster, Allowed: "host:port"})
		}
		// A server with DontListen is never ready if it has a cluster: it listens on a port of its own, which loopback
		// alone reaches.
		o.DontListen, o.Host, o.Port = false, "127.0.0.1", server.RANDOM_PORT
		o.Cluster = server.ClusterOpts{Name: clusterName, Host: host, Port: int(n), Username: cfg.User,
			Password: cfg.Password, NoAdvertise: true, ConnectRetries: 1 << 20,
			PoolSize: -1} // one connection to each peer carries all: there is one account
		if cfg.TLS != nil {
			o.Cluster.TLSConfig, o.Cluster.TLSTimeout = mutual(cfg.TLS, cfg.Peers), tlsTimeout.Seconds()
		}
	} else if cfg.TLS != nil {
		return nil, fmt.Errorf("nats: %w",
			&router.ConfigError{Field: "TLS", Value: "(set)", Allowed: "nil, without a Cluster"})
	}
	if cfg.TLS != nil && len(cfg.TLS.Certificates) == 0 && cfg.TLS.GetCertificate == nil {
		return nil, fmt.Errorf("nats: %w", &router.ConfigError{Field: "TLS", Value: "(set)", Allowed: "with a certificate"})
	}
	for _, p := range cfg.Peers {
		if _, _, err := net.SplitHostPort(p); err != nil || cfg.Cluster == "" {
			return nil, fmt.Errorf("nats: %w",
				&router.ConfigError{Field: "Peers", Value: p, Allowed: "host:port, with a Cluster"})
		}
	}
	s := &Server{cfg: cfg, opts: o}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s.routes = s.peers(ctx)
	o.Routes = s.urls(s.routes)
	var err error
	if s.server, err = server.NewServer(o); err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	if cfg.Log != nil {
		s.server.SetLoggerV2(logger{cfg.Log}, false, false, false)
	}
	s.server.Start()
	if !s.server.ReadyForConnections(10 * time.Second) {
		s.Close()
		return nil, errors.New("nats: the server did not start; is the cluster's address free?")
	}
	return s, nil
}

// tlsTimeout bounds a handshake between servers: on a machine with much to do the two seconds of NATS are few.
const tlsTimeout = 10 * time.Second

// mutual returns c for servers of which each shows a certificate to the other.
func mutual(c *tls.Config, peers []string) *tls.Config {
	c = c.Clone()
	if c.ClientAuth == tls.NoClientCert {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if c.ClientCAs == nil {
		c.ClientCAs = c.RootCAs
	}
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	names := map[string]bool{}
	for _, p := range peers {
		host, _, _ := net.SplitHostPort(p) // it was checked, or is refused next
		names[host] = true
	}
	for name := range names { // its addresses are dialed, and the certificates have the name
		if len(names) == 1 && net.ParseIP(name) == nil {
			c.ServerName = cmp.Or(c.ServerName, name)
		}
	}
	return c
}

// byName reports whether the server itself looks up the names of peers: then their certificates are checked by the name
// of each, not by its address.
func (s *Server) byName() bool {
	c := s.opts.Cluster.TLSConfig
	return c != nil && c.ServerName == ""
}

// peers looks up the addresses of Peers.
func (s *Server) peers(ctx context.Context) []string {
	var all []string
	for _, p := range s.cfg.Peers {
		host, port, err := net.SplitHostPort(p)
		if err != nil {
			continue // it was checked
		}
		addrs := []string{host}
		if net.ParseIP(host) == nil && !s.byName() {
			if addrs, err = s.cfg.resolve(ctx, host); err != nil {
				continue // it may be there later
			}
		}
		for _, a := range addrs {
			all = append(all, net.JoinHostPort(a, port))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (s *Server) urls(addrs []string) []*url.URL {
	var all []*url.URL
	for _, a := range addrs {
		u := &url.URL{Scheme: "nats", Host: a}
		if s.cfg.User != "" {
			u.User = url.UserPassword(s.cfg.User, s.cfg.Password)
		}
		all = append(all, u)
	}
	return all
}

// Run looks up the peers again, until ctx is done. Routes to peers that are gone are given up: the server itself would
// try them for ever.
func (s *Server) Run(ctx context.Context) error {
	t := time.NewTicker(s.cfg.Lookup)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := s.peers(ctx)
		if len(now) == 0 || slices.Equal(now, s.routes) { // a name that cannot be looked up changes nothing
			continue
		}
		next := s.opts.Clone()
		next.Routes = s.urls(now)
		if err := s.server.ReloadOptions(next); err != nil {
			if s.cfg.Log != nil {
				s.cfg.Log.Warn("nats: the peers cannot be changed", "err", err)
			}
			continue
		}
		s.opts, s.routes = next, now
	}
}

// Peers returns the number of servers that this one is connected to.
func (s *Server) Peers() int { return s.server.NumRemotes() }

// Close ends the server and waits for it.
func (s *Server) Close() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// logger is the server's.
type logger struct{ log *slog.Logger }

func (l logger) Noticef(string, ...any)    {}
func (l logger) Debugf(string, ...any)     {}
func (l logger) Tracef(string, ...any)     {}
func (l logger) Warnf(f string, v ...any)  { l.log.Warn("nats", "message", fmt.Sprintf(f, v...)) }
func (l logger) Errorf(f string, v ...any) { l.log.Error("nats", "message", fmt.Sprintf(f, v...)) }
func (l logger) Fatalf(f string, v ...any) { l.log.Error("nats", "message", fmt.Sprintf(f, v...)) }
