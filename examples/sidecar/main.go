// Command sidecar serves the library to gateways that are not written in Go, over
// HTTP and a Unix socket: it picks the replica for a prompt, and the gateway
// reports the end of the request.
//
//	sidecar -socket /run/warmroute.sock http://vllm-1:8000 http://vllm-2:8000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8090",
		"address to serve on; none if empty, or if there is a -socket and no -listen")
	socket := flag.String("socket", "", "path of a Unix socket to serve on; none if empty")
	var hosts []string
	flag.Func("host", "`name` under which callers reach -listen, in addition to localhost and addresses; give one for each",
		func(name string) error { hosts = append(hosts, name); return nil })
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: sidecar [flags] target-url...")
		flag.PrintDefaults()
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "listen" })
	if *socket != "" && !given {
		*listen = "" // nothing listens that was not asked to
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, log, *listen, *socket, hosts, flag.Args()); err != nil {
		log.Error("sidecar", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger, addr, socket string, hosts, targets []string) error {
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		return err
	}
	var members []loadview.Member
	for _, id := range targets {
		members = append(members, loadview.Member{ID: id})
	}
	if err := fleet.Set(members); err != nil {
		return err
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		return err
	}
	s, err := New(Config{Router: router.New(strategy, fleet, router.Options{}), Fleet: fleet, Log: log,
		Hosts: hosts})
	if err != nil {
		return err
	}
	defer s.Close()

	var listeners []net.Listener
	if addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
	}
	if socket != "" {
		l, err := listenUnix(socket)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return err
		}
		listeners = append(listeners, l)
	}
	return serve(ctx, s, listeners...)
}

// listenUnix listens on a Unix socket for this user and group. A socket that
// nobody answers on was left behind, and is replaced.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if f, e := os.Lstat(path); e != nil || f.Mode().Type() != os.ModeSocket {
			return nil, err
		}
		if c, dialed := net.Dial("unix", path); dialed == nil {
			c.Close()
			return nil, err
		} else if !errors.Is(dialed, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// serve serves h on the listeners until ctx is done.
func serve(ctx context.Context, h http.Handler, listeners ...net.Listener) error {
	if len(listeners) == 0 {
		return errors.New("there is nothing to serve on")
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- srv.Serve(l) }()
	}
	var err error
	ended := 0
	select {
	case err = <-failed:
		ended = 1
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		srv.Close()
	}
	for ; ended < len(listeners); ended++ {
		<-failed
	}
	return err
}
