package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/contrib/nats"
	"github.com/warmroute/router/contrib/redis"
	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/share"
)

// The kinds of bus: a NATS server in each process, one apart, Redis or Valkey.
const (
	embedded  = "embedded"
	natsApart = "nats"
	redisBus  = "redis"
)

var busKinds = []string{embedded, natsApart, redisBus}

// busSpec is one process's way to the bus.
type busSpec struct {
	Kind    string // "": none
	Addr    string // of the server apart
	Cluster string // embedded: this process's
	Peers   []string
}

// open connects.
func (s *busSpec) open() (bus share.Bus, closeAll func(), err error) {
	switch s.Kind {
	case "":
		return nil, func() {}, nil
	case embedded:
		server, err := nats.NewServer(nats.ServerConfig{Cluster: s.Cluster, Peers: s.Peers})
		if err != nil {
			return nil, nil, err
		}
		b, err := nats.New(nats.Config{Server: server})
		if err != nil {
			server.Close()
			return nil, nil, err
		}
		return b, func() { b.Close(); server.Close() }, nil
	case natsApart:
		b, err := nats.New(nats.Config{URL: "nats://" + s.Addr})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	case redisBus:
		b, err := redis.New(redis.Config{Addrs: []string{s.Addr}})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	}
	return nil, nil, fmt.Errorf("no such bus: %q", s.Kind)
}

// aBus is a bus between processes: its server, if it is one apart, and the way of each process to it.
type aBus struct {
	kind   string
	server *busServer // nil: there is none
	specs  []busSpec
}

// newBus starts the server of a kind of bus for n processes. "none" is no bus.
func (o *options) newBus(ctx context.Context, kind string, n int) (*aBus, error) {
	b := &aBus{kind: kind, specs: make([]busSpec, n)}
	switch kind {
	case "none":
		return b, nil
	case embedded:
		var addrs []string
		for range n {
			a, err := ports.Free()
			if err != nil {
				return nil, err
			}
			addrs = append(addrs, a)
		}
		for i := range b.specs {
			b.specs[i] = busSpec{Kind: kind, Cluster: addrs[i], Peers: addrs}
		}
		return b, nil
	}
	server, err := o.startServer(ctx, kind)
	if err != nil {
		return nil, err
	}
	b.server = server
	for i := range b.specs {
		b.specs[i] = busSpec{Kind: kind, Addr: server.addr}
	}
	return b, nil
}

func (b *aBus) close() {
	if b.server != nil {
		b.server.kill()
	}
}

// busServer is a server apart.
type busServer struct {
	addr    string
	program string
	args    []string
	cmd     *exec.Cmd
	tail    loadgen.Tail
}

// programs are those that were built.
type programs struct {
	dir  string
	nats string
}

func (p *programs) folder() (string, error) {
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "gateways")
		if err != nil {
			return "", err
		}
		p.dir = dir
	}
	return p.dir, nil
}

func (p *programs) remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

func (o *options) startServer(ctx context.Context, kind string) (*busServer, error) {
	addr, err := ports.Free()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	s := &busServer{addr: addr}
	switch kind {
	case natsApart:
		if s.program, err = o.natsServer(ctx); err != nil {
			return nil, err
		}
		s.args = []string{"-a", host, "-p", port}
	case redisBus:
		dir, err := o.started.folder()
		if err != nil {
			return nil, err
		}
		s.program = o.redis
		s.args = []string{"--bind", host, "--port", port, "--save", "", "--dir", dir}
	}
	return s, s.start(ctx)
}

// natsServer returns the program, and builds it if none was named.
func (o *options) natsServer(ctx context.Context) (string, error) {
	if o.nats != "" {
		return o.nats, nil
	}
	if o.started.nats == "" {
		dir, err := o.started.folder()
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "nats-server")
		if err := loadgen.Build(ctx, path, "github.com/nats-io/nats-server/v2", ""); err != nil {
			return "", err
		}
		o.started.nats = path
	}
	return o.started.nats, nil
}

// start starts the server, at the same address each time, and waits until it takes connections.
func (s *busServer) start(ctx context.Context) error {
	s.cmd = exec.Command(s.program, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.tail, &s.tail
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(30 * time.Second); ; {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil || time.Now().After(end) {
			s.kill()
			return errors.Join(fmt.Errorf("%s does not start: %w: %s", s.program, err, s.tail.String()), ctx.Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *busServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// cpu returns the processor time so far, 0 without a server.
func (b *aBus) cpu() (time.Duration, error) {
	if b.server == nil {
		return 0, nil
	}
	return loadgen.CPU(b.server.cmd.Process.Pid)
}
