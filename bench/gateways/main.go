// Command gateways measures gateways that share one view of their replicas (package share) on real buses: NATS within
// the gateways, a NATS server apart, and Redis or Valkey. It uses loopback addresses only, and all processes that it
// starts end with it.
//
//	go -C bench run ./gateways -run bus        # frames on the bare bus: lag
//	go -C bench run ./gateways -run share      # processes that route and share, without HTTP: lag, CPU a request
//
// The servers are processes of this machine: nats-server is built from the version that the module requires,
// redis-server is looked for on PATH.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gateways:", err)
		os.Exit(1)
	}
}

// options are the flags, parsed.
type options struct {
	parts, buses   []string
	nodes          int
	rates          []float64
	warm, measure  time.Duration
	nats, redis    string // programs
	out            io.Writer
	started        programs
	frameSize      int
	prefix, unique int // bytes of a prompt
}

// parts are the measurements, in the order in which they are made.
var parts = []struct {
	name string
	run  func(ctx context.Context, o *options) error
}{
	{"bus", busTable},
	{"share", shareTable},
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 1 && args[0] == nodeArg {
		return serveNode(in, out)
	}
	o := &options{out: out}
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	fs := flag.NewFlagSet("gateways", flag.ContinueOnError)
	what := fs.String("run", strings.Join(all, ","), "`parts` to measure")
	buses := fs.String("buses", "embedded,nats,redis", "`kinds` of bus: embedded, nats, redis; none for -run share")
	rates := fs.String("rates", "300,3000,10000", "frames or requests a second, of all processes together")
	fs.IntVar(&o.nodes, "nodes", 8, "`processes` that share")
	fs.DurationVar(&o.warm, "warm", 3*time.Second, "`time` before a measurement")
	fs.DurationVar(&o.measure, "measure", 15*time.Second, "`time` of one")
	fs.IntVar(&o.frameSize, "frame", 160, "`bytes` of a frame, -run bus")
	fs.IntVar(&o.prefix, "prefix", 12<<10, "`bytes` of a prompt that others have too, -run share")
	fs.IntVar(&o.unique, "unique", 2<<10, "`bytes` that it has alone")
	fs.StringVar(&o.nats, "nats-server", "", "`program` (empty: built from the module's version)")
	fs.StringVar(&o.redis, "redis-server", "redis-server", "`program`, of Redis or Valkey")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.parts, o.buses = strings.Split(*what, ","), strings.Split(*buses, ",")
	for _, s := range strings.Split(*rates, ",") {
		r, err := strconv.ParseFloat(s, 64)
		if err != nil || r <= 0 {
			return fmt.Errorf("-rates %q: want numbers above 0", *rates)
		}
		o.rates = append(o.rates, r)
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.nodes < 2:
		return fmt.Errorf("-nodes %d: want at least 2", o.nodes)
	case o.frameSize < frameHead || o.prefix < 0 || o.unique < 16 || o.measure <= 0 || o.warm < 0:
		return errors.New("a size or a time is too small")
	case runtime.GOOS != "linux":
		return errors.New("it needs Linux: the processor time of another process is read from /proc")
	}
	for _, p := range o.parts {
		if !slices.Contains(all, p) {
			return fmt.Errorf("-run %s: want %s", p, strings.Join(all, ", "))
		}
	}
	for _, b := range o.buses {
		if b != "none" && !slices.Contains(busKinds, b) {
			return fmt.Errorf("-buses %s: want none, %s", b, strings.Join(busKinds, ", "))
		}
	}
	defer o.started.remove()
	for _, p := range parts {
		if slices.Contains(o.parts, p.name) {
			if err := p.run(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}
