package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/contrib/nats"
	"github.com/warmroute/router/contrib/redis"
	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/share"
)

// The kinds of bus: a NATS server in each process, one apart, three apart as a cluster, Redis or Valkey.
const (
	embedded    = "embedded"
	natsApart   = "nats"
	natsCluster = "nats3"
	redisBus    = "redis"
)

var busKinds = []string{embedded, natsApart, natsCluster, redisBus}

// busSpec is one process's way to the bus.
type busSpec struct {
	Kind    string   // "": none
	Addrs   []string // of the servers apart
	Cluster string   // embedded: this process's
	Peers   []string
	TLS     string // embedded: the folder of the certificate that each shows to the others; "": none
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
	case natsApart, natsCluster:
		b, err := nats.New(nats.Config{URL: "nats://" + strings.Join(s.Addrs, ",nats://")})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	case redisBus:
		b, err := redis.New(redis.Config{Addrs: s.Addrs})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	}
	return nil, nil, fmt.Errorf("no such bus: %q", s.Kind)
}

// aBus is a bus between processes: its servers, if they are apart, and the way of each process to it.
type aBus struct {
	kind    string
	servers []*busServer
	specs   []busSpec
}

// newBus starts the servers of a kind of bus for n processes. "none" is no bus.
func (o *options) newBus(ctx context.Context, kind string, n int) (*aBus, error) {
	b := &aBus{kind: kind, specs: make([]busSpec, n)}
	if kind == "none" {
		return b, nil
	}
	if kind == embedded {
		addrs, err := free(n)
		for i := range b.specs {
			b.specs[i] = busSpec{Kind: kind, Cluster: addrs[i], Peers: addrs}
		}
		return b, err
	}
	if err := o.startServers(ctx, b); err != nil {
		b.close()
		return nil, err
	}
	for i := range b.specs {
		b.specs[i].Kind = kind
		for k := range b.servers { // each begins with another one
			b.specs[i].Addrs = append(b.specs[i].Addrs, b.servers[(i+k)%len(b.servers)].addr)
		}
	}
	return b, nil
}

// free returns n addresses that nobody listens on.
func free(n int) ([]string, error) {
	all := make([]string, n)
	for i := range all {
		var err error
		if all[i], err = ports.Free(); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (b *aBus) close() {
	for _, s := range b.servers {
		s.kill()
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
	dir           string
	nats, gateway string
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

func (o *options) startServers(ctx context.Context, b *aBus) error {
	n, program := 1, o.redis
	if b.kind != redisBus {
		var err error
		if program, err = o.natsServer(ctx); err != nil {
			return err
		}
	}
	if b.kind == natsCluster {
		n = 3
	}
	addrs, err := free(n)
	if err != nil {
		return err
	}
	routes, err := free(n)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		s := &busServer{addr: addr, program: program, args: []string{"-a", host, "-p", port}}
		switch b.kind {
		case redisBus:
			dir, err := o.started.folder()
			if err != nil {
				return err
			}
			s.args = []string{"--bind", host, "--port", port, "--save", "", "--dir", dir}
		case natsCluster:
			s.args = append(s.args, "-no_advertise=true", "-cluster_name", "bench", "-cluster", "nats://"+routes[i],
				"-routes", "nats://"+strings.Join(routes, ",nats://"))
		}
		if err := s.start(ctx); err != nil {
			return err
		}
		b.servers = append(b.servers, s)
	}
	return nil
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

// cpu returns the processor time of the servers so far.
func (b *aBus) cpu() (sum time.Duration, err error) {
	for _, s := range b.servers {
		d, err := loadgen.CPU(s.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}
