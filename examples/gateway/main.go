// Command gateway is a reverse proxy for engines that speak the OpenAI and
// Anthropic APIs, ready to run: it sends each request to the replica that can
// answer soonest.
//
//	gateway -listen :8080 -target http://vllm-1:8000 -target http://vllm-2:8000=2
//	gateway -demo
//
// Every path is forwarded and counted. See the README beside it for what it does
// and does not do.
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
	"sync"
	"syscall"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var (
		c       Config
		options router.Options
		members targets
		serve   = server{log: slog.New(slog.NewTextHandler(stderr, nil))}
		fs      = flag.NewFlagSet("gateway", flag.ContinueOnError)
		listen  = fs.String("listen", "127.0.0.1:8080", "`address` to listen on")
		chosen  choice
		events  kvEvents
		demo    = fs.Bool("demo", false, "show round_robin and cache_aware side by side on replicas in this process, and end")
		maxText = fs.Int("max-text", 0, "`bytes` of a prompt that are matched (0: all)")
	)
	scrape := fs.Duration("scrape", 0, "how often to read each target's /metrics for what other gateways sent it (0: never)")
	probe := fs.Duration("probe", 0, "how often to ask each target's /health (0: never; what requests tell is always used)")
	fs.SetOutput(stderr)
	fs.StringVar(&chosen.strategy, "strategy", cacheaware.Name, "how to choose a target: "+strategyNames())
	fs.Float64Var(&chosen.leastWork.MissWeight, "miss-weight", 0, "least_work: what a token that is not cached costs (0: 5)")
	fs.Float64Var(&chosen.leastWork.ContextWeight, "context-weight", 0, "least_work: what a token of context in flight costs (0: 0.2)")
	fs.Float64Var(&chosen.leastWork.Agree, "agree", 0, "least_work: the share of the cost that several gateways may give to choose alike (0: none)")
	fs.Var(&members, "target", "`URL[=weight]` of a replica; give one for each")
	fs.Var(&events, "kv-events", "`EVENTS[,REPLAY]`: where a replica publishes its KV events, tcp://host:port each; give one for each -target, in the same order")
	topic := fs.String("kv-topic", "", "what the `topics` of KV events begin with (empty: any)")
	mode := fs.String("tokens", tokensHeader, "where token ids come from, beside prompts of ids and the header: `header` (nowhere else), memo or tokenize")
	tokenizeTimeout := fs.Duration("tokenize-timeout", time.Second, "-tokens tokenize: most time to find a prompt's ids before it is routed by its text")
	fs.IntVar(&options.Attempts, "attempts", 3, "most targets that one request is sent to")
	fs.BoolVar(&options.FailOpen, "fail-open", false, "where no target is ready, try one that is not instead of answering 503")
	fs.Int64Var(&c.MaxBody, "max-body", 32<<20, "most `bytes` of one request body")
	fs.Int64Var(&c.MaxBodies, "max-bodies", 1<<30, "most `bytes` of all request bodies at once")
	fs.IntVar(&c.MaxRequests, "max-requests", 16384, "most requests at once")
	fs.DurationVar(&c.BodyTimeout, "body-timeout", time.Minute, "most time for a client to send its body")
	fs.DurationVar(&c.WriteTimeout, "write-timeout", time.Minute, "most time for a client to take in what it is sent")
	fs.DurationVar(&c.HeaderTimeout, "header-timeout", 10*time.Minute, "most time for a target to begin its reply")
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 5*time.Minute, "most time between two parts of a reply")
	fs.DurationVar(&serve.drain, "drain-delay", 5*time.Second, "time to go on listening after SIGTERM, with /healthz at 503")
	fs.DurationVar(&serve.grace, "grace", time.Minute, "most time for replies to finish after that")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case *demo:
		return runDemo(ctx, stdout)
	case len(members) == 0:
		return errors.New("no -target; try -demo to see it at work without one")
	case options.Attempts < 1:
		return errors.New("-attempts is less than 1")
	case *maxText < 0:
		return errors.New("-max-text is negative")
	case *tokenizeTimeout <= 0:
		return errors.New("-tokenize-timeout is not positive")
	case *scrape < 0 || *probe < 0:
		return errors.New("-scrape or -probe is negative")
	}
	if err := checkTokenMode(*mode); err != nil {
		return err
	}
	if chosen.strategy == precisecacheaware.Name {
		var pc precisecacheaware.Config
		if *mode != tokensHeader {
			pc.Fallback = precisecacheaware.FallbackText
		}
		p, err := newPrecise(pc, members.ids(), events, *topic, serve.log)
		if err != nil {
			return err
		}
		chosen.precise, c.precise = p, p
	} else if len(events) > 0 || *topic != "" || *mode != tokensHeader {
		return errNoPrecise
	}
	members.watch(*scrape > 0, *probe > 0)
	view := loadview.Config{Scrape: loadview.Scrape{Interval: *scrape}, Probe: loadview.Probe{Interval: *probe}}
	r, v, err := newRouter(chosen, members, view, options)
	if err != nil {
		return err
	}
	if *mode != tokensHeader {
		if c.tokens, err = newTokenSource(*mode, *tokenizeTimeout, v, serve.log); err != nil {
			return err
		}
		c.tokens.watch(c.precise)
		defer c.tokens.close()
	}
	c.Router, c.Log = r, serve.log
	c.Parser = prompt.Parser{Tenant: tenant, MaxText: *maxText}
	h, err := NewHandler(c)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	serve.log.Info("listening", "address", ln.Addr().String(), "strategy", chosen.strategy, "targets", len(members))
	watching, stop := context.WithCancel(context.Background()) // to the last reply, beyond ctx
	watched := make(chan error, 1)
	go func() { watched <- v.Run(watching) }()
	var subscribed sync.WaitGroup
	if c.precise != nil {
		subscribed.Go(func() { c.precise.run(watching) })
	}
	err = serve.run(ctx, ln, h)
	stop()
	<-watched // stop is all that ends it
	subscribed.Wait()
	logPage(serve.log, makePage(c.precise, c.tokens))
	return err
}

// server runs a Handler until its ctx is done.
type server struct {
	log   *slog.Logger
	drain time.Duration // to go on listening, so that who balances over gateways sees the 503
	grace time.Duration // for replies to finish after that
}

func (s *server) run(ctx context.Context, ln net.Listener, h *Handler) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	h.Drain()
	s.log.Info("draining", "requests", h.Active())
	select {
	case err := <-failed:
		return err
	case <-time.After(s.drain):
	}
	stop, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	err := srv.Shutdown(stop)
	if err != nil {
		s.log.Warn("ending what has not finished", "requests", h.Active())
		err = errors.Join(fmt.Errorf("requests were cut off: %w", err), srv.Close())
	}
	if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
