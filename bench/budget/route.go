package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/cacheaware"
)

// newRouter returns a Router with cache_aware over a fleet of n idle members.
func newRouter(n int) (*router.Router, error) {
	s, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		return nil, err
	}
	view, err := newView(n)
	if err != nil {
		return nil, err
	}
	return router.New(s, view, router.Options{}), nil
}

// roundTrip does a gateway's work for a request, except sending it.
func roundTrip(ctx context.Context, r *router.Router, text string) error {
	l, err := r.Route(ctx, router.Prompt{Model: scope, Text: text})
	if err != nil {
		return err
	}
	l.FirstToken()
	l.Done(router.Outcome{Status: 200})
	return nil
}

// routeRows measures Route, FirstToken and Done on prompts of 16 KiB: the next
// turns of conversations that the fleet knows.
func routeRows(t *table, o *options) error {
	t.say("Route + Done")
	const size = 16 << 10
	r, err := newRouter(8)
	if err != nil {
		return err
	}
	var texts []string
	for i, text := range o.chat.last {
		if len(text) < size {
			continue
		}
		// All but the last 600 bytes have been sent before.
		if err := roundTrip(context.Background(), r, text[:size-600]); err != nil {
			return err
		}
		texts = append(texts, o.chat.last[i][:size])
	}
	var failed atomic.Pointer[error]
	call := func(ctx context.Context, text string) {
		if err := roundTrip(ctx, r, text); err != nil {
			failed.Store(&err)
		}
	}
	// Who serves HTTP has a context that can be canceled, one for each request.
	timed := func(texts []string) *samples {
		s := newSamples(len(texts))
		for _, text := range texts {
			ctx, cancel := context.WithCancel(context.Background())
			start := time.Now()
			call(ctx, text)
			s.add(time.Since(start))
			cancel()
		}
		return s
	}
	procs := runtime.GOMAXPROCS(1)
	first := timed(texts)
	resident := best(o.reps, func() time.Duration { return timed(texts).p(.5) })[0]
	allocs := mallocs(len(texts), func(i int) { call(context.Background(), texts[i]) })
	runtime.GOMAXPROCS(procs)
	t.check("Route + Done, 8 targets, 16 KiB, p50", "<= 10 us on one core", first.p(.5) <= 10*time.Microsecond,
		"%.1f us (p99 %.1f us; of prompts that are there %.1f us), %.1f allocations", us(first.p(.5)), us(first.p(.99)),
		us(resident), allocs)

	for _, flatOut := range []bool{false, true} {
		var p50, p99, worst time.Duration
		var wrote float64
		for rep := range o.reps {
			u := underWriters{texts: texts, tag: fmt.Sprint(rep, flatOut), flatOut: flatOut, failed: &failed}
			b50, b99, w := u.run(call, timed)
			if worst = max(worst, b99); rep == 0 || b99 < p99 {
				p50, p99, wrote = b50, b99, w
			}
		}
		const format = "%.1f us (p50 %.1f us; worst p99 of %d runs %.0f us) while 2 others route %.0fk new turns a second " +
			"on %d cores"
		if flatOut {
			t.reading("  p99 if they do nothing else", format, us(p99), us(p50), o.reps, us(worst), wrote/1e3, procs)
		} else {
			t.check("  p99 under 2 writers", "<= 50 us", p99 <= 50*time.Microsecond, format, us(p99), us(p50), o.reps, us(worst),
				wrote/1e3, procs)
		}
	}
	if e := failed.Load(); e != nil {
		return *e
	}
	return parallelRows(t, o, texts)
}

// underWriters times new turns of conversations while two goroutines route
// others.
type underWriters struct {
	texts []string
	tag   string // makes the turns of one run new to the others
	// flatOut lets the writers do nothing but route, so that they want the fleet's
	// lock all the time; otherwise they read each request's body first, as a
	// gateway has to.
	flatOut bool
	failed  *atomic.Pointer[error]
}

func (u *underWriters) run(call func(context.Context, string), timed func([]string) *samples) (p50, p99 time.Duration,
	perSecond float64) {
	const writers, rounds = 2, 2
	// All is made before, so that making it is not measured.
	lists := make([][]string, writers+1)
	bodies := make([][][]byte, writers+1)
	for w := range lists {
		for round := range rounds {
			for i, text := range u.texts {
				next := u.texts[(i+1+w)%len(u.texts)]
				text = fmt.Sprintf("%s%s.%d.%d %s", text[:len(text)-600], u.tag, w, round, next[len(next)-590:])
				lists[w] = append(lists[w], text)
				if w > 0 && !u.flatOut {
					text, _ := json.Marshal(strings.ToValidUTF8(text, " "))
					bodies[w] = append(bodies[w], fmt.Appendf(nil, `{"model":"bench","messages":[{"role":"user","content":%s}]}`,
						text))
				}
			}
		}
	}
	runtime.GC()
	var wrote atomic.Int64
	var ended atomic.Bool
	var wg sync.WaitGroup
	start := time.Now()
	for w := range writers {
		wg.Go(func() {
			for i, text := range lists[w+1] {
				if !u.flatOut {
					// Its result differs from the prepared prompt (the body is one
					// message), so only the work is used.
					if _, err := prompt.FromChat(bodies[w+1][i]); err != nil {
						u.failed.Store(&err)
					}
				}
				call(context.Background(), text)
				wrote.Add(1)
			}
			ended.Store(true)
		})
	}
	s := newSamples(len(lists[0]))
	const chunk = 50
	for list := lists[0]; len(list) >= chunk && !ended.Load(); list = list[chunk:] {
		s.d = append(s.d, timed(list[:chunk]).d...)
	}
	perSecond = float64(wrote.Load()) / time.Since(start).Seconds()
	wg.Wait()
	return s.p(.5), s.p(.99), perSecond
}
