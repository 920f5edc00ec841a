package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// fault is one that goes on for a time and is mended then.
type fault struct {
	name  string
	begin func(f *fleet) error
	mend  func(ctx context.Context, f *fleet) error
	fits  func(f *fleet) bool // nil: always
}

var faults = []fault{
	{"nothing", func(*fleet) error { return nil }, func(context.Context, *fleet) error { return nil }, nil},
	{"a gateway is killed, and starts again",
		func(f *fleet) error { f.gateways[0].kill(); return nil },
		func(ctx context.Context, f *fleet) error { return f.gateways[0].start(ctx) }, nil},
	{"a gateway stands still (SIGSTOP)",
		func(f *fleet) error { return pause(f.gateways[0].cmd.Process, true) },
		func(_ context.Context, f *fleet) error { return pause(f.gateways[0].cmd.Process, false) }, nil},
	{"half of the gateways are cut off",
		func(f *fleet) error { f.part(len(f.gateways)/2, state{cut: true}); return nil },
		func(_ context.Context, f *fleet) error { f.part(0, state{}); return nil }, nil},
	{"all wires stand still",
		func(f *fleet) error { f.part(len(f.gateways), state{standing: true}); return nil },
		func(_ context.Context, f *fleet) error { f.part(0, state{}); return nil }, nil},
	{"all wires take 100 ms",
		func(f *fleet) error { f.part(len(f.gateways), state{delay: 100 * time.Millisecond}); return nil },
		func(_ context.Context, f *fleet) error { f.part(0, state{}); return nil }, nil},
	{"the bus is gone: all wires are cut",
		func(f *fleet) error { f.part(len(f.gateways), state{cut: true}); return nil },
		func(_ context.Context, f *fleet) error { f.part(0, state{}); return nil },
		func(f *fleet) bool { return len(f.bus.servers) == 0 }},
	{"the bus is killed, and starts again",
		func(f *fleet) error {
			for _, s := range f.bus.servers {
				s.kill()
			}
			return nil
		},
		func(ctx context.Context, f *fleet) error {
			for _, s := range f.bus.servers {
				if err := s.start(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		func(f *fleet) bool { return len(f.bus.servers) > 0 }},
	{"one server of the bus is killed, and starts again",
		func(f *fleet) error { f.bus.servers[0].kill(); return nil },
		func(ctx context.Context, f *fleet) error { return f.bus.servers[0].start(ctx) },
		func(f *fleet) bool { return len(f.bus.servers) > 1 }},
}

// faultTable runs clients against gateways while things go wrong.
func faultTable(ctx context.Context, o *options) error {
	fmt.Fprintf(o.out, "\n%.0f requests a second; each fault goes on for %v, and is followed by %v:\n\n", o.rate, o.broken,
		o.calm)
	fmt.Fprintln(o.out, "| gateways | bus | fault | requests | lost | sent again | cached: during | after | "+
		"TTFT mean ms: during | after | others counted | load together after s | views alike after s |")
	fmt.Fprintln(o.out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, n := range o.gateways {
		for _, kind := range o.buses {
			if kind == "none" || n < 2 {
				continue
			}
			if err := o.breakFleet(ctx, kind, n); err != nil {
				return fmt.Errorf("%d gateways, %s: %w", n, kind, err)
			}
		}
	}
	return nil
}

func (o *options) breakFleet(ctx context.Context, kind string, n int) error {
	f, err := o.newFleet(ctx, kind, n, true)
	if err != nil {
		return err
	}
	defer f.close()
	c := newClients(f.urls(), o)
	defer c.http.CloseIdleConnections()
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(running)
	}()
	defer func() { stop(); <-ended }()
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	if err := wait(o.warm); err != nil {
		return err
	}
	for _, x := range faults {
		if x.fits != nil && !x.fits(f) {
			continue
		}
		from := time.Since(c.begun)
		if err := x.begin(f); err != nil {
			return err
		}
		if err := wait(o.broken); err != nil {
			return err
		}
		counted := f.counted(ctx)
		if err := x.mend(ctx, f); err != nil {
			return err
		}
		mended := time.Since(c.begun)
		last := c.sample(20)
		took, err := f.together(ctx, time.Minute)
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		alike, err := f.alikeAgain(ctx, last)
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		alike += took
		if err := wait(o.calm); err != nil {
			return err
		}
		to := time.Since(c.begun)
		if err := c.settle(ctx, to); err != nil { // those that were sent before have an end
			return err
		}
		all, during, after := c.between(from, to), c.between(from, mended), c.between(mended+took, to)
		if all.err != nil {
			fmt.Fprintln(os.Stderr, "lost:", all.err)
		}
		fmt.Fprintf(o.out, "| %d | %s | %s | %d | %d | %d | %.3f | %.3f | %.0f | %.0f | %.1f | %.1f | %.1f |\n", n, kind,
			x.name, all.requests, all.lost, all.again, during.cached, after.cached,
			float64(during.mean)/1e6, float64(after.mean)/1e6,
			counted, took.Seconds(), alike.Seconds())
	}
	return nil
}
