package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/contrib/nats"
	"github.com/warmroute/router/contrib/redis"
	"github.com/warmroute/router/internal/tlsfiles"
	"github.com/warmroute/router/share"
)

// sharing is this gateway's part in the view that several gateways share. The zero value shares nothing.
type sharing struct {
	node   *share.Share
	kind   string
	server *nats.Server // nil: the bus is apart
	close  []func()
}

// share connects to the bus of a file's [share]. It is config.Options.Share.
func (s *service) share(f *file.Share) (router.Peers, *router.Holders, error) {
	user, password := os.Getenv(f.UserEnv), os.Getenv(f.PasswordEnv)
	sh := sharing{kind: f.Kind()}
	bus, err := sh.connect(f, user, password, s.log)
	if err != nil {
		sh.end()
		return nil, nil, err
	}
	c := f.Config()
	c.Bus, c.Secret = bus, os.Getenv(f.SecretEnv)
	c.Trace = share.Trace{
		LoadChanged: func(shared bool, lag time.Duration) {
			if shared {
				s.log.Info("the load of other gateways counts again", "lag", lag)
			} else {
				s.log.Warn("the bus is too slow: the load of other gateways does not count", "lag", lag)
			}
		},
		Ignored: func(err error) { s.log.Warn("frames of another fleet or version on the bus", "err", err) },
	}
	if sh.node, err = share.New(c); err != nil {
		sh.end()
		return nil, nil, err
	}
	h, err := sh.node.Holders(router.HoldersConfig{})
	if err != nil {
		sh.end()
		return nil, nil, err
	}
	s.sharing = sh
	return sh.node, h, nil
}

// connect returns the bus, which connects in the background.
func (sh *sharing) connect(f *file.Share, user, password string, log *slog.Logger) (share.Bus, error) {
	secure, err := tlsfiles.Client(f.CAFile, f.CertFile, f.KeyFile)
	if err != nil {
		return nil, err
	}
	switch sh.kind {
	case file.BusRedis:
		c := redis.Config{Addrs: make([]string, len(f.Bus)), Master: f.RedisMaster, Cluster: f.RedisCluster,
			Username: user, Password: password}
		for i, a := range f.Bus {
			scheme, address, _ := strings.Cut(a, "://")
			c.Addrs[i] = address
			if scheme == "rediss" {
				c.TLS = secure
			}
		}
		bus, err := redis.New(c)
		if err != nil {
			return nil, err
		}
		sh.close = append(sh.close, bus.Close)
		return bus, nil
	case file.BusEmbedded:
		_, address, _ := strings.Cut(f.Bus[0], "://")
		c := nats.ServerConfig{Cluster: address, Peers: f.Peers, User: user, Password: password, Log: log}
		if f.CertFile != "" {
			if c.TLS, err = tlsfiles.Peer(f.CAFile, f.CertFile, f.KeyFile); err != nil {
				return nil, err
			}
		}
		sh.server, err = nats.NewServer(c)
		if err != nil {
			return nil, err
		}
		sh.close = append(sh.close, sh.server.Close)
		return sh.nats(nats.Config{Server: sh.server, Name: f.Name})
	}
	c := nats.Config{URL: strings.Join(f.Bus, ","), Name: f.Name, User: user, Password: password,
		Credentials: f.CredentialsFile}
	if f.CAFile != "" || f.CertFile != "" || strings.Contains(c.URL, "tls://") {
		c.TLS = secure
	}
	return sh.nats(c)
}

func (sh *sharing) nats(c nats.Config) (share.Bus, error) {
	bus, err := nats.New(c)
	if err != nil {
		return nil, err
	}
	sh.close = append([]func(){bus.Close}, sh.close...) // before its server
	return bus, nil
}

// run shares until ctx is done.
func (sh *sharing) run(ctx context.Context, log *slog.Logger) {
	if sh.node == nil {
		return
	}
	log.Info("sharing with other gateways", "bus", sh.kind)
	var wg sync.WaitGroup
	if sh.server != nil {
		wg.Go(func() { _ = sh.server.Run(ctx) }) // ctx is all that ends it
	}
	if err := sh.node.Run(ctx); err != nil {
		log.Error("nothing is shared", "err", err)
	}
	wg.Wait()
}

// end closes the bus.
func (sh *sharing) end() {
	for _, f := range sh.close {
		f()
	}
}
