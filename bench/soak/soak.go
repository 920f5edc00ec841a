package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// soak is one run.
type soak struct {
	out             io.Writer
	length          time.Duration
	users, replicas int
	think, row      time.Duration
	seed            uint64
	gateway         string // path of the program; "": it is built
	verbose         bool
	hostile         bool // hostile clients come and go
}

// The growth that is allowed over a run. A collection's figure is in whole MB,
// and the requests in flight differ each time.
var (
	heapLimit      = limit{share: 0.10, fixed: 1.5 * (1 << 20)}
	goroutineLimit = limit{share: 0.15, fixed: 16}
	residentLimit  = limit{share: 0.15, fixed: 8 << 20}
)

// warmUp is the part of a run that is not judged: caches and pools fill.
func (s *soak) warmUp() time.Duration { return min(s.length/4, 5*time.Minute) }

func (s *soak) check() error {
	switch {
	case s.length < 40*time.Second:
		return errors.New("-for is less than 40s, in which nothing can be seen")
	case s.users < 1 || s.users > 400:
		return errors.New("-users is not in 1..400")
	case s.replicas < 3 || s.replicas > 100:
		return errors.New("-replicas is not in 3..100")
	case s.think < 0 || s.row <= 0:
		return errors.New("-think is negative, or -row not positive")
	}
	return nil
}

// run does it all and reports whether the gateway stayed as it was. An error is that
// it could not be found out.
func (s *soak) run(ctx context.Context) (good bool, err error) {
	if err := s.check(); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "soak-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if s.gateway == "" {
		if s.gateway, err = build(ctx, dir); err != nil {
			return false, err
		}
	}
	f := &fleet{
		path: filepath.Join(dir, "gateway.toml"), model: "*", strategy: "cache_aware", stay: s.replicas,
		did:    map[string]int{},
		random: rand.New(rand.NewPCG(s.seed, 0)), log: func(string) {},
	}
	defer f.close()
	if s.verbose {
		start := time.Now()
		f.log = func(what string) { fmt.Fprintf(s.out, "%8.1fs %s\n", time.Since(start).Seconds(), what) }
	}
	for range s.replicas {
		if err := f.replica(); err != nil {
			return false, err
		}
	}
	if err := f.publish(); err != nil {
		return false, err
	}
	g, err := startGateway(ctx, s.gateway, f.path)
	if err != nil {
		return false, err
	}
	f.gateway = g
	stopped := false
	defer func() {
		if !stopped {
			_ = g.stop(15 * time.Second) // something else went wrong before
		}
	}()

	idle, err := s.idle(ctx, g)
	if err != nil {
		return false, err
	}
	v := verdict{out: s.out}
	c := &clients{url: g.url, users: s.users, think: s.think, seed: s.seed, ledger: &f.ledger}
	if s.hostile {
		c.hostile = newHostile(g.url)
	}
	f.surge = c.surge
	r, err := s.load(ctx, f, c)
	if err != nil {
		return false, err
	}
	if err := f.calm(ctx); err != nil {
		return false, err
	}
	r.judge(&v, c.hostile)
	happenings(&v, f, c, s.length)
	if c.hostile != nil {
		c.hostile.judge(&v)
	}
	s.atRest(ctx, &v, f, idle)
	stopped = true
	v.check("the gateway ends in order", g.stop(15*time.Second))
	v.check("no prompt, session key or API key in its log", g.discreet())
	v.conclude()
	return v.good(), ctx.Err()
}

// idle returns the number of goroutines of a gateway with nothing to do.
func (s *soak) idle(ctx context.Context, g *gateway) (float64, error) {
	var seen []sample
	for len(seen) < 2 {
		if !pause(ctx, sampleEvery) {
			return 0, ctx.Err()
		}
		select {
		case <-g.exited:
			return 0, fmt.Errorf("the gateway ended: %v\n%s", g.err, g.lastWords())
		default:
		}
		_, n := g.samples()
		seen = append(seen, n...)
	}
	return seen[len(seen)-1].v, nil
}

// readings are the measurements of the gateway under load.
type readings struct {
	from                       time.Time // end of the warm-up
	heap, goroutines, resident []sample
}

// load runs the clients and the churn for the length, and prints rows.
func (s *soak) load(ctx context.Context, f *fleet, c *clients) (*readings, error) {
	under, stop := context.WithTimeout(ctx, s.length)
	defer stop()
	start := time.Now()
	r := &readings{from: start.Add(s.warmUp())}
	var wg sync.WaitGroup
	wg.Go(func() { c.run(under) })
	if c.hostile != nil {
		during, every := s.length, attackEvery
		if s.length < often {
			during = s.warmUp() - settling
			every = during / 2
		}
		attacked, done := context.WithTimeout(under, during)
		defer done()
		wg.Go(func() { c.hostile.run(attacked, every) })
	}
	var churned error
	wg.Go(func() {
		if churned = f.churn(under); churned != nil {
			stop()
		}
	})

	fmt.Fprintf(s.out, "%d replicas and up to %d that come and go, %d clients, %v; not judged before %v\n\n",
		s.replicas, maxGuests, s.users, s.length, s.warmUp())
	fmt.Fprintf(s.out, "%8s %9s %8s %7s %8s %7s %7s %7s | %9s %10s %9s\n", "time", "requests", "whole", "again",
		"canceled", "refused", "broken", "failed", "heap MB", "goroutines", "RSS MB")
	var shown struct{ heap, goroutines int }
	next := start.Add(s.row)
	var ended error
	for pause(under, sampleEvery) && ended == nil {
		heap, goroutines := f.gateway.samples()
		r.heap, r.goroutines = append(r.heap, heap...), append(r.goroutines, goroutines...)
		if v := f.gateway.resident(); v > 0 {
			r.resident = append(r.resident, sample{time.Now(), v})
		}
		if now := time.Now(); !now.Before(next) {
			next = next.Add(s.row)
			fmt.Fprintf(s.out, "%8s %9d %8d %7d %8d %7d %7d %7d | %9.1f %10.0f %9.1f\n", now.Sub(start).Round(time.Second),
				c.sent.Load(), c.whole.Load(), c.again.Load(), c.canceled.Load(), c.refused.Load(), c.broken.Load(),
				c.failed.Load(),
				median(r.heap[shown.heap:])/(1<<20), median(r.goroutines[shown.goroutines:]), f.gateway.resident()/(1<<20))
			shown.heap, shown.goroutines = len(r.heap), len(r.goroutines)
		}
		select {
		case <-f.gateway.exited:
			ended = fmt.Errorf("the gateway ended: %v\n%s", f.gateway.err, f.gateway.lastWords())
			stop()
		default:
		}
	}
	wg.Wait()
	fmt.Fprintln(s.out)
	return r, errors.Join(ended, churned, ctx.Err())
}

// judge judges the readings while no hostile client held anything: how much they make the gateway hold, within its
// bounds, depends on the moment.
func (r *readings) judge(v *verdict, h *hostile) {
	for _, series := range []struct {
		what  string
		all   []sample
		limit limit
		unit  float64
	}{
		{"heap after collections (MB)", r.heap, heapLimit, 1 << 20},
		{"goroutines", r.goroutines, goroutineLimit, 1},
		{"resident memory (MB)", r.resident, residentLimit, 1 << 20},
	} {
		if len(series.all) == 0 && series.what[0] == 'r' {
			v.note("resident memory is not judged: it needs Linux")
			continue
		}
		first, last, err := flat(h.quiet(series.all), r.from, series.limit)
		v.check(fmt.Sprintf("%s flat: %.1f in the first third, %.1f in the last", series.what, first/series.unit,
			last/series.unit), err)
	}
}

// happenings checks that every planned fault occurred, without which the other checks
// mean nothing. A machine that is busy with other things may be too slow for an overload
// within a short run.
func happenings(v *verdict, f *fleet, c *clients, length time.Duration) {
	var missing []string
	for _, w := range wrongs {
		if f.did[w.name] == 0 {
			missing = append(missing, w.name)
		}
	}
	for _, name := range []string{"join", "malformed", "overload"} {
		if f.did[name] == 0 {
			missing = append(missing, name)
		}
	}
	if f.did["leave"]+f.did["vanish"] == 0 {
		missing = append(missing, "leave")
	}
	var did []string
	for _, name := range slices.Sorted(maps.Keys(f.did)) {
		did = append(did, fmt.Sprintf("%s %d", name, f.did[name]))
	}
	v.check("faults: "+strings.Join(did, ", "), unless(len(missing) > 0, "never: "+strings.Join(missing, ", ")))
	sent, whole, failed := c.sent.Load(), c.whole.Load(), c.failed.Load()+c.broken.Load()
	v.check(fmt.Sprintf("%d requests, of which %d were answered whole, %d of them by another replica than the first, %d "+
		"left by the client, %d nonsense, %d poison, and %d failed or broke off; %d more shed in overloads",
		sent, whole, c.again.Load(), c.canceled.Load(), c.refused.Load(), c.poisoned.Load(), failed, c.shed.Load()),
		unless(whole < 100 || c.again.Load() == 0 || c.canceled.Load() == 0 || c.refused.Load() == 0 ||
			c.poisoned.Load() == 0 || c.shed.Load() == 0 && length >= 10*time.Minute, "too little happened"))
	v.check("no request was lost that a healthy replica could have served", c.lost.err())
	v.check(fmt.Sprintf("%.2f%% of good requests failed or broke off", 100*float64(failed)/float64(max(1, whole+failed))),
		unless(failed*5 > whole, "more than a fifth of those that were answered whole"))
}
