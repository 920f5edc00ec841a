package router_test

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// send that never returns settles its lease, blames nobody and is not held up.
func TestDoPanics(t *testing.T) {
	tests := map[string]struct {
		send func()
		want any
	}{
		"panic":             {func() { panic("no") }, "no"},
		"abort handler":     {func() { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
		"runtime.Goexit":    {runtime.Goexit, nil},
		"panic of an error": {func() { panic(errRefused) }, errRefused},
	}
	for name, tt := range tests {
		for _, streaming := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				v := newView(t, loadview.Config{CoolAfter: 1}, "a", "b")
				w := &witness{Strategy: first, t: t}
				r := router.New(w, v, router.Options{Backoff: -1})
				var got any
				var calls int
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { got = recover() }()
					r.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
						calls++
						if streaming {
							l.FirstToken()
						}
						tt.send()
						return router.Outcome{}, nil
					})
					t.Error("Do returned")
				})
				wg.Wait()
				if got != tt.want || calls != 1 {
					t.Errorf("recovered %v after %d calls, want %v after one", got, calls, tt.want)
				}
				wantIdle(t, v)
				w.check()
				if o := w.last().outcomes; o[len(o)-1].Stage != router.Canceled {
					t.Errorf("recorded %+v", o)
				}
				if s := stateOf(t, v, "a"); s != router.Ready {
					t.Errorf("the target is %v", s)
				}
			})
		}
	}
}

// A strategy and hooks that panic leave nothing counted.
func TestOthersPanic(t *testing.T) {
	panics := func(f func()) (p any) {
		defer func() { p = recover() }()
		f()
		return nil
	}
	ok := func(context.Context, *router.Lease) (router.Outcome, error) {
		return router.Outcome{Reply: "Rayleigh."}, nil
	}
	t.Run("Pick", func(t *testing.T) {
		v := newView(t, loadview.Config{}, "a")
		crash := true
		r := router.New(pickFunc(func(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
			if crash {
				panic("pick")
			}
			return first(ctx, p, ts)
		}), v, router.Options{})
		for _, f := range []func(){
			func() { r.Route(t.Context(), prompt) },
			func() { r.Assign(t.Context(), prompt, "a") },
			func() { r.Do(t.Context(), prompt, ok) },
		} {
			if p := panics(f); p != "pick" {
				t.Errorf("recovered %v", p)
			}
			wantIdle(t, v)
		}
		crash = false
		route(t, r, t.Context()).Done(router.Outcome{}) // it goes on
	})
	for _, at := range []router.Stage{router.Sent, router.FirstToken, router.Finished} {
		t.Run("Record of "+at.String(), func(t *testing.T) {
			v := newView(t, loadview.Config{}, "a")
			r := router.New(crashing(at), v, router.Options{})
			if p := panics(func() { r.Do(t.Context(), prompt, ok) }); p != at {
				t.Errorf("recovered %v", p)
			}
			wantIdle(t, v)
		})
	}
	hooks := map[string]router.Trace{
		"Routed":     {Routed: func(context.Context, router.RouteInfo) { panic("hook") }},
		"FirstToken": {FirstToken: func(context.Context, router.Decision) { panic("hook") }},
		"Done":       {Done: func(context.Context, router.Decision, router.Outcome) { panic("hook") }},
		"Retry":      {Retry: func(context.Context, router.RetryInfo) { panic("hook") }},
	}
	for name, trace := range hooks {
		t.Run("Trace."+name, func(t *testing.T) {
			v := newView(t, loadview.Config{}, "a", "b")
			w := &witness{Strategy: first, t: t}
			r := router.New(w, v, router.Options{Trace: trace})
			p := panics(func() {
				r.Do(t.Context(), prompt, func(context.Context, *router.Lease) (router.Outcome, error) {
					if name == "Retry" {
						return router.Outcome{}, errRefused
					}
					return router.Outcome{Reply: "Rayleigh."}, nil
				})
			})
			if p != "hook" {
				t.Errorf("recovered %v", p)
			}
			wantIdle(t, v)
			w.check()
		})
	}
}

// crashing panics where the stage is recorded.
type crashing router.Stage

func (crashing) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	return first(ctx, p, ts)
}

func (c crashing) Record(_ router.Decision, o router.Outcome) {
	if o.Stage == router.Stage(c) {
		panic(o.Stage)
	}
}
