package file

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/warmroute/router/share"
)

// The kinds of a Share's bus.
const (
	BusNATS     = "nats"
	BusEmbedded = "embedded"
	BusRedis    = "redis"
)

// Share configures the view that the gateways of a fleet share; see package share. Package config does not connect to
// a bus: the host does, in Options.Share.
type Share struct {
	// Bus are the addresses of the bus. None: nothing is shared. All have one kind: nats://host:port and tls://host:port
	// are NATS servers, redis://host:port and rediss://host:port (with TLS) Redis or Valkey, and embedded://host:port is
	// one alone: a NATS server in this process, on which those of the other gateways connect.
	Bus []string `toml:"bus"`
	// Peers are the addresses of the embedded servers of all gateways, host:port each; a host may be a name with
	// several addresses.
	Peers []string `toml:"peers"`
	// SecretEnv names the environment variable with the fleet's secret, which has at least 16 bytes.
	SecretEnv string `toml:"secret_env"`
	// UserEnv and PasswordEnv name the variables with the user and the password of the bus, or of the cluster of
	// embedded servers; "": none. CredentialsFile is a file of NATS credentials.
	UserEnv         string `toml:"user_env"`
	PasswordEnv     string `toml:"password_env"`
	CredentialsFile string `toml:"credentials_file"`
	// CAFile, CertFile and KeyFile are PEM files for TLS to the bus: the authorities of its certificates ("": those of
	// the system), and a certificate of this gateway with its key. Embedded servers show it to each other: it has to be
	// one for servers and for clients.
	CAFile   string `toml:"ca_file"`
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
	// RedisMaster is the name by which sentinels at Bus know the server; RedisCluster says that Bus has nodes of a
	// cluster.
	RedisMaster  string `toml:"redis_master"`
	RedisCluster bool   `toml:"redis_cluster"`
	// Subject begins the subjects on the bus, one for each fleet. Name names this gateway for people; "": the host's name.
	Subject string `toml:"subject"`
	Name    string `toml:"name"`
	// MaxMarks bounds the fingerprints of text that are remembered, one for each KiB that was sent.
	MaxMarks int `toml:"max_marks" min:"1" max:"67108864"`
	// IntervalSecs is the least time between two frames, MaxLagSecs how late they may be for the load to count.
	IntervalSecs float64 `toml:"interval_secs" min:"0.0001" max:"0.01"`
	MaxLagSecs   float64 `toml:"max_lag_secs" min:"0.001" max:"10"`
	// Cache and Load say which half is shared: what was sent where, and what is in flight there.
	Cache bool `toml:"cache"`
	Load  bool `toml:"load"`
}

// Enabled reports whether there is a bus.
func (s *Share) Enabled() bool { return len(s.Bus) > 0 }

// Kind returns the kind of the bus; "": there is none.
func (s *Share) Kind() string {
	if !s.Enabled() {
		return ""
	}
	return busKind(s.Bus[0])
}

// Config returns the settings as package share has them, without bus, secret and hooks.
func (s *Share) Config() share.Config {
	return share.Config{
		Subject: s.Subject, Name: s.Name, MaxMarks: s.MaxMarks, Interval: secs(s.IntervalSecs), MaxLag: secs(s.MaxLagSecs),
		NoCache: !s.Cache, NoLoad: !s.Load,
	}
}

func (s *Share) defaults() {
	c := share.Config{}.WithDefaults()
	*s = Share{
		Subject: c.Subject, MaxMarks: c.MaxMarks, IntervalSecs: c.Interval.Seconds(), MaxLagSecs: c.MaxLag.Seconds(),
		Cache: true, Load: true,
	}
}

// busKind returns the kind of an address; "": it has none.
func busKind(address string) string {
	scheme, _, _ := strings.Cut(address, "://")
	switch scheme {
	case "nats", "tls":
		return BusNATS
	case "redis", "rediss":
		return BusRedis
	case "embedded":
		return BusEmbedded
	}
	return ""
}

// share checks the table [share].
func (c *checker) share() {
	s, path := &c.file.Share, child("", "share")
	if !c.good(path) {
		return
	}
	if !s.Enabled() {
		if s.SecretEnv != "" || len(s.Peers) > 0 {
			c.failTable(path, "bus is missing")
		}
		return
	}
	if !c.options.Share {
		c.warn(path, "nothing is shared: this program has no bus")
	}
	kind := c.bus(child(path, "bus"), s.Bus)
	only := func(key, of string, there bool) {
		if at := child(path, key); there && kind != "" && kind != of && c.good(at) {
			c.fail(at, nil, "is for a bus of the kind %s; this one is %s", of, kind)
		}
	}
	only("peers", BusEmbedded, len(s.Peers) > 0)
	only("credentials_file", BusNATS, s.CredentialsFile != "")
	only("redis_master", BusRedis, s.RedisMaster != "")
	only("redis_cluster", BusRedis, s.RedisCluster)
	for i, p := range s.Peers {
		if at := elem(child(path, "peers"), i); c.good(at) && !hostPort(p) {
			c.fail(at, p, "%q is not host:port", p)
		}
	}
	switch master := child(path, "redis_master"); {
	case !c.good(master):
	case s.RedisMaster != "" && s.RedisCluster:
		c.fail(master, s.RedisMaster, "is not for a cluster")
	case kind == BusRedis && len(s.Bus) > 1 && s.RedisMaster == "" && !s.RedisCluster:
		c.fail(child(path, "bus"), nil, "has several addresses, but neither redis_master nor redis_cluster is set")
	}
	if c.required(path, "secret_env", s.SecretEnv) {
		at := child(path, "secret_env")
		c.env(at, s.SecretEnv)
		if v, _ := c.options.Env(s.SecretEnv); c.good(at) && len(v) < share.MinSecret {
			c.fail(at, nil, "names an environment variable with fewer than %d bytes", share.MinSecret)
		}
	}
	for key, name := range map[string]string{"user_env": s.UserEnv, "password_env": s.PasswordEnv} {
		if name != "" {
			c.env(child(path, key), name)
		}
	}
	if at := child(path, "cert_file"); (s.CertFile == "") != (s.KeyFile == "") && c.good(at) {
		c.failTable(path, "cert_file and key_file go together")
	}
	plain := !slices.ContainsFunc(s.Bus, func(a string) bool { return strings.HasPrefix(a, "rediss://") })
	for key, name := range map[string]string{"ca_file": s.CAFile, "cert_file": s.CertFile} {
		if at := child(path, key); kind == BusRedis && plain && name != "" && c.good(at) {
			c.fail(at, nil, "is for rediss://: a bus with redis:// has no TLS")
		}
	}
	if kind == BusEmbedded && s.CAFile != "" && s.CertFile == "" && c.good(child(path, "ca_file")) {
		c.fail(child(path, "ca_file"), nil, "needs cert_file: embedded servers show each other certificates")
	}
	if at := child(path, "subject"); c.good(at) && !share.ValidSubject(s.Subject) {
		c.fail(at, s.Subject, "%q must have letters, digits and hyphens, with single dots between them", s.Subject)
	}
	if at := child(path, "name"); c.good(at) && len(s.Name) > share.MaxName {
		c.fail(at, nil, "has more than %d bytes", share.MaxName)
	}
	if !s.Cache && !s.Load && c.good(path) {
		c.failTable(path, "neither cache nor load is shared")
	}
}

// bus checks the addresses of a bus and returns their kind; "": they have none.
func (c *checker) bus(path string, addresses []string) string {
	kind := ""
	for i, a := range addresses {
		at := elem(path, i)
		if !c.good(at) {
			continue
		}
		u, err := url.Parse(a)
		switch k := busKind(a); {
		case err != nil || k == "":
			c.fail(at, nil, "is not a URL that begins with nats://, tls://, redis://, rediss:// or embedded://")
		case kind != "" && k != kind:
			c.fail(at, nil, "is of another kind than bus[0]")
		case u.User != nil:
			c.fail(at, nil, "has a user or a password in it; user_env and password_env name the variables with them")
		case !hostPort(u.Host) || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			c.fail(at, nil, "is not %s://host:port", u.Scheme)
		case k == BusEmbedded && len(addresses) > 1:
			c.fail(path, nil, "has several addresses; there is one embedded server, and peers are those of the others")
			return ""
		case k != BusEmbedded && c.policy.CheckURL("tcp://"+u.Host) != nil:
			c.fail(at, nil, "%s", strings.TrimPrefix(c.policy.CheckURL("tcp://"+u.Host).Error(), "egress: "))
		default:
			kind = k
		}
	}
	return kind
}

// hostPort reports whether s is host:port; the host may be empty, which is every address of this machine.
func hostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && len(s) <= maxName
}
