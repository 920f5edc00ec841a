// Command warmroute is a reverse proxy for engines that speak the OpenAI and
// Anthropic APIs, ready to run: it sends each request to the replica that can
// answer soonest.
//
//	warmroute -listen :8080 -target http://vllm-1:8000 -target http://vllm-2:8000=2
//	warmroute -listen :8080 -config router.toml
//	warmroute check -config router.toml
//	warmroute demo
//	warmroute fake -n 4
//
// warmroute -h lists the commands and the flags.
//
// Every path of an API is forwarded and counted. The README in this folder has the features and
// their limits.
//
// The exit status is 0 if it ended as it was asked to, 2 if the flags or the file are
// wrong, and 1 for any other error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/internal/tlsfiles"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

func main() {
	ctx := interrupted(context.Background())
	os.Exit(exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

// errInterrupt is the cause of a context that an interrupt from the keyboard ended, after which nobody has to see the
// gateway drain.
var errInterrupt = errors.New("interrupted")

// interrupted returns a context that SIGTERM or an interrupt ends. A second signal ends the process at once.
func interrupted(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		if s := <-c; s == os.Interrupt {
			cancel(errInterrupt)
		} else {
			cancel(nil)
		}
		signal.Stop(c)
	}()
	return ctx
}

// exit prints an error and returns the exit status of its kind.
func exit(err error, stderr io.Writer) int {
	var usage *usageError
	var bad *file.Error
	switch is := errors.As(err, &bad); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case is && bad.File != "":
		for _, p := range bad.Problems {
			fmt.Fprintf(stderr, "%s:%s\n", bad.File, p)
		}
		return 2
	case is: // of the flags, which have no lines
		for _, p := range bad.Problems {
			fmt.Fprintf(stderr, "warmroute: %s: %s\n", p.Key, p.Message)
		}
		return 2
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "warmroute:", err)
		return 2
	}
	fmt.Fprintln(stderr, "warmroute:", err)
	return 1
}

// usageError is an error in the flags or the file.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	name, args, err := commandOf(args)
	if err != nil {
		return err
	}
	switch name {
	case "fake":
		return runFake(ctx, args, stdout, stderr)
	case "explain":
		return runExplain(ctx, args, os.Stdin, stdout, stderr)
	case "completion":
		return runCompletion(args, stdout, stderr)
	case "check", "demo", "version": // they are flags too
		args = append([]string{"-" + name}, args...)
	}
	c, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if c.version {
		printVersion(stdout)
		return nil
	}
	if c.demo {
		return runDemo(ctx, stdout, c.live)
	}
	c.serve.log = slog.New(slog.NewTextHandler(stderr, nil))
	s, err := newService(c.serve.log)
	if err != nil {
		return err
	}
	if c.live != "" && !c.check {
		p, err := debugui.New(debugui.Config{Title: "Gateway " + c.listen, ShowPrompts: c.prompts})
		if err != nil {
			return err
		}
		s.live = &livePage{Page: p, parser: prompt.Parser{MaxText: c.maxText}}
		s.streams.live = s.live
		s.live.counts = http.HandlerFunc(s.serveCounts)
	}
	f, o, err := c.load(s)
	if err != nil {
		return err
	}
	for _, w := range f.Warnings {
		switch where := fmt.Sprintf("%s:%d:%d", c.file, w.Line, w.Column); {
		case !c.check && !c.strict:
			c.serve.log.Warn("configuration", "warning", w.String())
		case c.file == "":
			fmt.Fprintf(stderr, "warmroute: warning: %s: %s\n", w.Key, w.Message)
		default:
			fmt.Fprintf(stderr, "%s: warning: %s: %s\n", where, w.Key, w.Message)
		}
	}
	if c.strict && len(f.Warnings) > 0 {
		return usagef("with -strict a warning is an error")
	}
	if err := s.build(f, o); err != nil {
		return &usageError{err}
	}
	defer s.close()
	if c.check {
		_, err := io.WriteString(stdout, f.Effective())
		return err
	}
	return c.run(ctx, s)
}

// load reads the file, or the flags as one.
func (c *command) load(s *service) (*file.File, config.Options, error) {
	o := s.options()
	if c.file != "" {
		f, err := config.Load(c.file, o)
		return f, o, err
	}
	f, err := config.Parse([]byte(c.fleet.file()), o)
	return f, o, err
}

// run serves until ctx is done.
func (c *command) run(ctx context.Context, s *service) error {
	h := c.handler
	h.service, h.Log = s, c.serve.log
	h.Parser = prompt.Parser{Tenant: tenant, MaxText: c.maxText}
	handler, err := NewHandler(h)
	if err != nil {
		return &usageError{err}
	}
	s.maxRequests = handler.cfg.MaxRequests
	s.softLimit()
	var hup chan os.Signal
	if c.file != "" {
		hup = make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
	}
	if c.tlsCert != "" {
		if c.serve.tls, err = tlsfiles.Server(c.tlsCert, c.tlsKey); err != nil {
			return &usageError{fmt.Errorf("-tls-cert: %w", err)}
		}
	}
	ln, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	if s.live != nil {
		s.live.pprof = c.pprof
		if c.admin != "" {
			s.live.admin = &admin{
				service: s, options: s.options(), token: os.Getenv(c.admin), path: c.file, log: c.serve.log,
			}
		}
		url, stop, err := s.live.serve(c.live, c.serve.log)
		if err != nil {
			_ = ln.Close()
			return err
		}
		defer stop()
		c.serve.log.Info("live page", "url", url)
	}
	f := s.gateway.File()
	c.serve.log.Info("listening", "address", ln.Addr().String(),
		"strategy", strategiesOf(f), "targets", len(s.gateway.View().Snapshot()))
	for i := range f.Routes {
		if by := fallbackOf(&f.Routes[i]); by != "" {
			c.serve.log.Info("prompts without token ids", "route", f.Routes[i].Model, "fallback", by)
		}
	}
	watching, stop := context.WithCancel(context.Background()) // to the last reply, beyond ctx
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		var asking sync.WaitGroup
		asking.Go(func() { s.askAll(watching) })
		s.run(watching, c.file, c.watch, hup)
		asking.Wait()
	}()
	err = c.serve.run(ctx, ln, handler)
	stop()
	<-watched
	logPage(c.serve.log, s.page())
	return err
}

// strategiesOf returns the strategies of a file's routes, each once.
func strategiesOf(f *file.File) string {
	var names []string
	for _, r := range f.Routes {
		if !slices.Contains(names, r.Strategy) {
			names = append(names, r.Strategy)
		}
	}
	return strings.Join(names, ",")
}

// fallbackOf returns the way in which a route of precise_cache_aware chooses without token ids, "" for another route.
func fallbackOf(r *file.Route) string {
	c, ok := r.Settings[precisecacheaware.Name].(*precisecacheaware.Config)
	if !ok || r.Strategy != precisecacheaware.Name {
		return ""
	}
	return c.Fallback
}
