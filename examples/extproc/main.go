// Command extproc is an external processor for Envoy: it names, for each request,
// the replica that can answer soonest.
//
//	extproc -listen :9002 -target 10.0.0.1:8000 -target 10.0.0.2:8000=2
//
// The README in this folder has Envoy's part.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/strategy/leastwork"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "extproc:", err)
		os.Exit(1)
	}
}

// run is main without the process.
func run(ctx context.Context, args []string) error {
	var cfg Config
	var members []loadview.Member
	fs := flag.NewFlagSet("extproc", flag.ContinueOnError)
	listen := fs.String("listen", "127.0.0.1:9002", "`address` to listen on")
	scrape := fs.Duration("scrape", 0, "how often to read each target's /metrics for requests of others (0: never)")
	grace := fs.Duration("grace", time.Minute, "most time for replies to finish after SIGTERM")
	fs.Func("target", "`IP:port[=weight]` of a replica; give one for each", func(s string) error {
		m, err := parseTarget(s)
		members = append(members, m)
		return err
	})
	fs.IntVar(&cfg.Endpoints, "endpoints", DefaultEndpoints,
		"endpoints named for a request and its retries; 1 for an ORIGINAL_DST cluster")
	fs.IntVar(&cfg.MaxLoad, "max-load", 0, "requests at a replica from which on it is full; all full: 429 (0: never)")
	fs.DurationVar(&cfg.RetryAfter, "retry-after", DefaultRetryAfter, "the Retry-After of a 429")
	fs.BoolVar(&cfg.PassOn, "pass-on", false,
		"if no replica is ready, let Envoy's cluster choose instead of answering 503")
	fs.BoolVar(&cfg.Options.FailOpen, "fail-open", false, "if no replica is ready, choose among all instead")
	fs.IntVar(&cfg.MaxBody, "max-body", DefaultMaxBody, "most `bytes` of one request body")
	maxMemory := fs.Int64("max-memory", membudget.DefaultLimit,
		"most `bytes` that requests and replies make it hold at once")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if len(members) == 0 {
		return errors.New("no -target")
	}
	if *scrape > 0 {
		for i := range members {
			members[i].Metrics = "http://" + members[i].ID + "/metrics"
		}
	}
	view, err := loadview.New(loadview.Config{Scrape: loadview.Scrape{Interval: *scrape}})
	if err != nil {
		return err
	}
	cfg.Fleet = view
	if cfg.Strategy, err = leastwork.New(leastwork.Config{}); err != nil {
		return err
	}
	if cfg.Memory, err = membudget.New(membudget.Config{Limit: *maxMemory}); err != nil {
		return err
	}
	cfg.Parser.Tenant = tenant
	p, err := New(cfg)
	if err != nil {
		return err
	}
	if err := view.Set(members); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	slog.Info("listening", "address", ln.Addr().String(), "targets", len(members))
	watching, stop := context.WithCancel(context.Background()) // to the last reply, beyond ctx
	watched := make(chan error, 1)
	go func() { watched <- view.Run(watching) }()
	err = p.Serve(ctx, ln, *grace)
	stop()
	<-watched // stop is all that ends it
	return err
}

// Serve serves gRPC on ln, which it closes, until ctx is done: then gRPC health
// says so, replies under way have the time grace to finish, and the others are
// left to Envoy's failure_mode_allow.
func (p *Processor) Serve(ctx context.Context, ln net.Listener, grace time.Duration) error {
	// The rest of a message is its headers, which Envoy bounds to 60 KiB by default.
	s := grpc.NewServer(grpc.MaxRecvMsgSize(p.cfg.MaxBody+1<<20), grpc.MaxHeaderListSize(64<<10),
		grpc.ConnectionTimeout(10*time.Second))
	extproc.RegisterExternalProcessorServer(s, p)
	h := health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	for _, name := range []string{"", "liveness", "readiness", extproc.ExternalProcessor_ServiceDesc.ServiceName} {
		h.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	h.Shutdown()
	cut := time.AfterFunc(grace, s.Stop)
	s.GracefulStop()
	cut.Stop()
	if err := <-failed; !errors.Is(err, grpc.ErrServerStopped) { // it is if ctx was done immediately
		return err
	}
	return nil
}

func parseTarget(s string) (loadview.Member, error) {
	address, w, weighted := strings.Cut(s, "=")
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return loadview.Member{}, err
	}
	m := loadview.Member{ID: a.String(), Weight: 1}
	if weighted {
		if m.Weight, err = strconv.ParseFloat(w, 64); err != nil || !(m.Weight > 0) || m.Weight > 1e6 {
			return m, fmt.Errorf("weight %q is not a number above 0, at most 1e6", w)
		}
	}
	return m, nil
}

// tenant keeps equal session keys of two API keys apart.
func tenant(h http.Header) string {
	key := h.Get("Authorization") + "\x00" + h.Get("X-Api-Key")
	if key == "\x00" {
		if key = h.Get("Api-Key") + "\x00" + h.Get("X-Goog-Api-Key"); key == "\x00" {
			return ""
		}
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}
