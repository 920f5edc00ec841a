package router_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

var errGone = errors.New("the client went away")

// Every way in which a request ends, what the strategy hears of it, and what the
// fleet makes of the target.
func TestEndings(t *testing.T) {
	type end = func(l *router.Lease, cancel context.CancelCauseFunc)
	type outs = []router.Outcome
	done := func(os ...router.Outcome) end {
		return func(l *router.Lease, _ context.CancelCauseFunc) {
			for _, o := range os {
				l.Done(o)
			}
		}
	}
	const sent, token, finished, failed, canceled = router.Sent, router.FirstToken, router.Finished, router.Failed,
		router.Canceled
	tests := map[string]struct {
		end    end
		want   outs
		blamed bool
	}{
		"finished":     {end: done(router.Outcome{Status: 200}), want: outs{{Stage: finished, Status: 200}}},
		"nothing said": {end: done(router.Outcome{}), want: outs{{Stage: finished}}},
		"said to be finished": {end: done(router.Outcome{Stage: finished, Err: errRefused}),
			want: outs{{Stage: finished, Err: errRefused}}},
		"an error": {end: done(router.Outcome{Err: errRefused}), want: outs{{Stage: failed, Err: errRefused}},
			blamed: true},
		"status 500": {end: done(router.Outcome{Status: 500}), want: outs{{Stage: failed, Status: 500}},
			blamed: true},
		"status 400": {end: done(router.Outcome{Status: 400}), want: outs{{Stage: failed, Status: 400}}},
		"status 404": {end: done(router.Outcome{Status: 404}), want: outs{{Stage: failed, Status: 404}}},
		"status 399": {end: done(router.Outcome{Status: 399}), want: outs{{Stage: finished, Status: 399}}},
		"canceled": {end: done(router.Outcome{Stage: canceled, Err: errRefused}),
			want: outs{{Stage: canceled, Err: errRefused}}},
		"not final: sent": {end: done(router.Outcome{Stage: sent}), want: outs{{Stage: finished}}},
		"not a stage at all": {end: done(router.Outcome{Stage: 77, Status: 502}),
			want: outs{{Stage: failed, Status: 502}}, blamed: true},
		"twice": {end: done(router.Outcome{Status: 200}, router.Outcome{Status: 500}),
			want: outs{{Stage: finished, Status: 200}}},
		"stage first token": {
			end:  done(router.Outcome{Stage: token}),
			want: outs{{Stage: token}, {Stage: finished}},
		},
		"output tokens": {
			end:  done(router.Outcome{OutputTokens: 7, Err: errRefused}),
			want: outs{{Stage: token}, {Stage: failed, OutputTokens: 7, Err: errRefused}}, blamed: true,
		},
		"not sent": {end: done(router.Outcome{NotSent: true}), want: outs{{Stage: failed, NotSent: true}}},
		"not sent, an error": {end: done(router.Outcome{NotSent: true, Err: errRefused, Status: 503}),
			want: outs{{Stage: failed, NotSent: true, Err: errRefused}}},
		"not sent, a token": {
			end:  done(router.Outcome{NotSent: true, OutputTokens: 1}),
			want: outs{{Stage: token}, {Stage: finished, OutputTokens: 1}},
		},
		"a reply": {
			end:  done(router.Outcome{Reply: "Rayleigh."}),
			want: outs{{Stage: token}, {Stage: finished, Reply: "Rayleigh."}},
		},
		"first token, then finished": {
			end: func(l *router.Lease, _ context.CancelCauseFunc) {
				l.FirstToken()
				l.FirstToken()
				l.Done(router.Outcome{Reply: "Rayleigh.", OutputTokens: 3, PromptTokens: 9, CachedTokens: 2})
				l.FirstToken()
			},
			want: outs{{Stage: token}, {Stage: finished, Reply: "Rayleigh.", OutputTokens: 3, PromptTokens: 9, CachedTokens: 2}},
		},
		"first token after the end": {
			end: func(l *router.Lease, _ context.CancelCauseFunc) {
				l.Done(router.Outcome{Status: 200})
				l.FirstToken()
			},
			want: outs{{Stage: finished, Status: 200}},
		},
		"context done": {
			end:  func(_ *router.Lease, cancel context.CancelCauseFunc) { cancel(errGone) },
			want: outs{{Stage: canceled, Err: errGone}},
		},
		"context done after the first token": {
			end: func(l *router.Lease, cancel context.CancelCauseFunc) {
				l.FirstToken()
				cancel(errGone)
			},
			want: outs{{Stage: token}, {Stage: canceled, Err: errGone}},
		},
		"context done after the end": {
			end: func(l *router.Lease, cancel context.CancelCauseFunc) {
				l.Done(router.Outcome{Status: 502})
				cancel(errGone)
			},
			want: outs{{Stage: failed, Status: 502}}, blamed: true,
		},
		"the end after context done": {
			end: func(l *router.Lease, cancel context.CancelCauseFunc) {
				cancel(errGone)
				synctest.Wait()
				l.FirstToken()
				l.Done(router.Outcome{Status: 502})
			},
			want: outs{{Stage: canceled, Err: errGone}},
		},
		"deadline": {
			end:  func(*router.Lease, context.CancelCauseFunc) { time.Sleep(101 * time.Hour) },
			want: outs{{Stage: canceled, Err: context.DeadlineExceeded}},
		},
		"retry that is not another try": {
			end: func(l *router.Lease, _ context.CancelCauseFunc) {
				if next, err := l.Retry(context.Background(), router.Outcome{Status: 422}); next != nil || err == nil {
					panic("sent again")
				}
			},
			want: outs{{Stage: failed, Status: 422}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newView(t, loadview.Config{CoolAfter: 1, CoolBase: 1000 * time.Hour, FullFor: -1}, "a")
				w := &witness{Strategy: first, t: t}
				r := router.New(w, v, router.Options{})
				ctx, stop := context.WithTimeout(t.Context(), 100*time.Hour)
				defer stop()
				ctx, cancel := context.WithCancelCause(ctx)
				l := route(t, r, ctx)
				wantCounts(t, v, 1)
				tt.end(l, cancel)
				synctest.Wait()
				wantIdle(t, v)
				want := append(outs{{Stage: sent}}, tt.want...)
				if diff := cmp.Diff(want, w.last().outcomes, cmpopts.EquateErrors()); diff != "" {
					t.Errorf("recorded (-want +got):\n%s", diff)
				}
				if got := stateOf(t, v, "a") != router.Ready; got != tt.blamed {
					t.Errorf("the target was blamed: %v, want %v", got, tt.blamed)
				}
				cancel(nil)
			})
		})
	}
}

// A context that is done by the time a lease would be handed out, without its
// goroutine having run: what is not said to be final is the client's doing.
func TestDoneUnderDoneContext(t *testing.T) {
	f := newPool(ready("a")...)
	for range 200 {
		ctx, cancel := context.WithCancelCause(t.Context())
		l := route(t, router.New(first, f, router.Options{}), ctx)
		cancel(errGone)
		l.Done(router.Outcome{Err: errRefused, Status: 502})
	}
	for _, o := range f.ended {
		if o.Stage != router.Canceled {
			t.Fatalf("ended with %+v", o)
		}
	}
	if f.counts["a"] != 0 || len(f.ended) != 200 {
		t.Errorf("%d in flight, %d ended", f.counts["a"], len(f.ended))
	}
}

// Done and the end of the context wait for each other, so that the one that
// comes second finds the counters as they are to be.
func TestDoneWaits(t *testing.T) {
	v := newView(t, loadview.Config{}, "a")
	r := router.New(first, v, router.Options{})
	for range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		l := route(t, r, ctx)
		cancel()
		l.Done(router.Outcome{})
		if n := inFlight(v)[0]; n != 0 {
			t.Fatalf("after Done %d are in flight", n)
		}
	}
}

// A context that ends while the choice is made: the request is counted, and
// settled at once.
func TestContextEndsInPick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, loadview.Config{}, "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &witness{Strategy: pickFunc(func(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision,
			error) {
			cancel(errGone)
			return first(ctx, p, ts)
		}), t: t}
		l := route(t, router.New(w, v, router.Options{}), ctx)
		synctest.Wait()
		wantIdle(t, v)
		l.Done(router.Outcome{Status: 200})
		want := []router.Outcome{{Stage: router.Sent}, {Stage: router.Canceled, Err: errGone}}
		if diff := cmp.Diff(want, w.last().outcomes, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
}

// watched is a context that never ends and counts who waits for its end.
type watched struct {
	context.Context
	done chan struct{}
	n    int
}

func (c *watched) Done() <-chan struct{} { return c.done }

func (c *watched) AfterFunc(func()) func() bool {
	c.n++
	return func() bool {
		c.n--
		return true
	}
}

// A context that outlives its requests does not collect them.
func TestNothingLeftOnContext(t *testing.T) {
	c := &watched{Context: t.Context(), done: make(chan struct{})}
	l := route(t, router.New(first, newPool(ready("a")...), router.Options{}), c)
	if c.n != 1 {
		t.Errorf("%d wait for the end of the context", c.n)
	}
	l.Done(router.Outcome{})
	if c.n != 0 {
		t.Errorf("after Done %d wait for the end of the context", c.n)
	}
}

// A request that outlives its target touches neither the counter nor the health
// of one that came back under the same ID.
func TestLeftAndCameBack(t *testing.T) {
	v := newView(t, loadview.Config{CoolAfter: 1}, "a", "b")
	w := &witness{Strategy: first, t: t}
	r := router.New(w, v, router.Options{})
	old := []*router.Lease{route(t, r, t.Context()), route(t, r, t.Context()), route(t, r, t.Context())}
	setMembers(t, v, "b")
	old[0].Done(router.Outcome{Err: errRefused})
	setMembers(t, v, "a", "b")
	wantCounts(t, v, 0, 0)
	young := route(t, r, t.Context())
	wantCounts(t, v, 1, 0)
	old[1].Done(router.Outcome{Status: 200})
	next, err := old[2].Retry(t.Context(), router.Outcome{Err: errRefused})
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, v, 1, 1)
	if id := next.Decision().Target.ID; id != "b" {
		t.Errorf("sent again to %s", id)
	}
	if s := stateOf(t, v, "a"); s != router.Ready {
		t.Errorf("the new one is %v", s)
	}
	young.Done(router.Outcome{Status: 200})
	next.Done(router.Outcome{Status: 200})
	wantIdle(t, v)
	w.check()
}

// No length of time settles a live request.
func TestTenHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, loadview.Config{}, "a")
		w := &witness{Strategy: first, t: t}
		r := router.New(w, v, router.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := route(t, r, ctx)
		for range 10 {
			time.Sleep(time.Hour)
			synctest.Wait()
			wantCounts(t, v, 1)
		}
		l.FirstToken()
		time.Sleep(10 * time.Hour)
		wantCounts(t, v, 1)
		l.Done(router.Outcome{Status: 200})
		wantIdle(t, v)
		w.check()
	})
}

// Prefill is what was not cached, in tokens, until the first of them is seen.
func TestPrefill(t *testing.T) {
	v := newView(t, loadview.Config{}, "a")
	r := router.New(pickFunc(func(_ context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
		d := router.Decision{Target: ts[0], Cached: 400}
		d.Length, d.Unit = p.Length()
		return d, nil
	}), v, router.Options{})
	prefill := func() int { return v.Snapshot()[0].Target.Load.Prefill }
	l, err := r.Route(t.Context(), router.Prompt{Text: string(make([]byte, 1000))})
	if err != nil {
		t.Fatal(err)
	}
	if n := prefill(); n != 150 {
		t.Errorf("600 bytes are %d tokens", n)
	}
	m, err := r.Route(t.Context(), router.Prompt{Tokens: make([]uint32, 1000)})
	if err != nil {
		t.Fatal(err)
	}
	if n := prefill(); n != 750 {
		t.Errorf("600 tokens on top are %d", n)
	}
	l.FirstToken()
	if n := prefill(); n != 600 {
		t.Errorf("after the first token of one: %d", n)
	}
	m.Done(router.Outcome{Status: 500})
	if n := prefill(); n != 0 {
		t.Errorf("after the end of the other: %d", n)
	}
	l.Done(router.Outcome{})
	wantIdle(t, v)
}

// What a strategy leaves empty in its Decision is filled in, so that a fleet can
// count it and Retry routes the same prompt.
func TestBareDecision(t *testing.T) {
	v := newView(t, loadview.Config{}, ids(2)...)
	r := router.New(first, v, router.Options{Backoff: -1})
	want := router.Decision{Prompt: prompt, Target: router.Target{ID: "vllm-0", Load: router.Load{Known: true}},
		Length: len(prompt.Text)}
	l := route(t, r, t.Context())
	if diff := cmp.Diff(want, l.Decision()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	next, err := l.Retry(t.Context(), router.Outcome{Status: 503})
	if err != nil {
		t.Fatal(err)
	}
	want.Target.ID = "vllm-1"
	if diff := cmp.Diff(want, next.Decision()); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	if l.Attempt() != 1 || next.Attempt() != 2 {
		t.Errorf("attempts %d and %d", l.Attempt(), next.Attempt())
	}
	next.Done(router.Outcome{})
	wantIdle(t, v)
}
