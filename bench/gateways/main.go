// Command gateways measures gateways that share one view of their replicas (package share) on real buses: NATS within
// the gateways, a NATS server apart, and Redis or Valkey. It uses loopback addresses only, and all processes that it
// starts end with it.
//
//	go -C bench run ./gateways -run bus        # frames on the bare bus: lag
//	go -C bench run ./gateways -run share      # processes that route and share, without HTTP: lag, CPU a request
//	go -C bench run ./gateways -run fleet      # gateways in front of engines: cached share, time to first token, CPU
//	go -C bench run ./gateways -run faults     # gateways and the bus are killed and parted: nothing is lost
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

	gateway      string // program
	gateways     []int
	rate, scale  float64
	think        time.Duration
	tokens       int
	systems      int
	seed         uint64
	broken, calm time.Duration
	repeat       int
	stall        time.Duration
}

// parts are the measurements, in the order in which they are made.
var parts = []struct {
	name string
	run  func(ctx context.Context, o *options) error
}{
	{"bus", busTable},
	{"share", shareTable},
	{"fleet", fleetTable},
	{"faults", faultTable},
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
	buses := fs.String("buses", "none,embedded,nats,redis",
		"`kinds` of bus: none, embedded, nats (a server apart), nats3 (a cluster of three apart), redis")
	rates := fs.String("rates", "300,3000,10000", "frames or requests a second, of all processes together")
	fs.IntVar(&o.nodes, "nodes", 8, "`processes` that share")
	fs.DurationVar(&o.warm, "warm", 3*time.Second, "`time` before a measurement")
	fs.DurationVar(&o.measure, "measure", 15*time.Second, "`time` of one")
	fs.IntVar(&o.frameSize, "frame", 160, "`bytes` of a frame, -run bus")
	fs.IntVar(&o.prefix, "prefix", 12<<10, "`bytes` of a prompt that others have too, -run share")
	fs.IntVar(&o.unique, "unique", 2<<10, "`bytes` that it has alone")
	fs.StringVar(&o.nats, "nats-server", "", "`program` (empty: built from the module's version)")
	fs.StringVar(&o.redis, "redis-server", "redis-server", "`program`, of Redis or Valkey")
	fs.StringVar(&o.gateway, "gateway", "", "`program` of the gateway (empty: built)")
	gateways := fs.String("gateways", "3,8", "`numbers` of gateways, -run fleet and faults")
	fs.Float64Var(&o.rate, "rate", 40, "requests a second, -run fleet and faults")
	fs.Float64Var(&o.scale, "scale", 1, "the engines' `time`: 0.1 is ten times as fast")
	fs.DurationVar(&o.think, "think", time.Second, "mean `time` from a reply to the next turn")
	fs.IntVar(&o.tokens, "tokens", 32, "`tokens` of a reply")
	fs.IntVar(&o.systems, "systems", 24, "system `prompts`")
	fs.Uint64Var(&o.seed, "seed", 1, "of the conversations")
	fs.DurationVar(&o.broken, "broken", 8*time.Second, "`time` that a fault goes on, -run faults")
	fs.DurationVar(&o.calm, "calm", 6*time.Second, "`time` after it is mended and the views are together")
	fs.IntVar(&o.repeat, "repeat", 3, "most `times` that a row of -run fleet is measured while the machine stalls")
	fs.DurationVar(&o.stall, "stall", 10*time.Millisecond, "`time` by which sleeps may be too long")
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
	for _, s := range strings.Split(*gateways, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("-gateways %q: want numbers above 0", *gateways)
		}
		o.gateways = append(o.gateways, n)
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.nodes < 2:
		return fmt.Errorf("-nodes %d: want at least 2", o.nodes)
	case o.frameSize < frameHead || o.prefix < 0 || o.unique < 16 || o.measure <= 0 || o.warm < 0 ||
		o.rate <= 0 || o.scale <= 0 || o.tokens < 1 || o.systems < 1:
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
