package router_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
)

// announcer is a Fleet that says which targets are gone.
type announcer struct {
	*pool
	mu      sync.Mutex
	hearers map[int]func(string)
	next    int
}

func (a *announcer) OnForget(f func(string)) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hearers == nil {
		a.hearers = map[int]func(string){}
	}
	n := a.next
	a.next++
	a.hearers[n] = f
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.hearers, n)
	}
}

func (a *announcer) gone(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.hearers {
		f(id)
	}
}

func (a *announcer) hearing() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.hearers)
}

// The strategy of a Router forgets the targets that its fleet reports, without a
// call by hand; one that cannot forget has a Router that still must.
func TestForgetWired(t *testing.T) {
	a := &announcer{pool: newPool(ready("a", "b")...)}
	r := router.New(cacheAware(t), a, router.Options{})
	among := r.Among(func(router.Target) bool { return true })
	plain := router.New(first, a, router.Options{})
	if n := a.hearing(); n != 2 {
		t.Errorf("%d are registered", n)
	}
	l := route(t, among, t.Context())
	id := l.Decision().Target.ID
	a.gone("unknown")
	if c := explain(t, r)[0]; c.Target.ID != id || c.Cached == 0 {
		t.Errorf("%+v", c)
	}
	a.gone(id)
	for _, c := range explain(t, r) {
		if c.Cached != 0 {
			t.Errorf("%+v", c)
		}
	}
	l.Done(router.Outcome{})
	runtime.KeepAlive(r)
	runtime.KeepAlive(plain)
}

// Routers that come and go leave nothing with their fleet, and one that is still
// used, if only through Among or a lease, is still notified.
func TestForgetLeavesNothing(t *testing.T) {
	a := &announcer{pool: newPool(ready("a", "b")...)}
	for range 100 {
		router.New(cacheAware(t), a, router.Options{})
	}
	kept := router.New(cacheAware(t), a, router.Options{}).Among(func(router.Target) bool { return true })
	for i := 0; a.hearing() > 1; i++ {
		if i == 1000 {
			t.Fatalf("%d are registered", a.hearing())
		}
		runtime.GC() // cleanups run on their own goroutine
		runtime.Gosched()
	}
	l := route(t, kept, t.Context())
	a.gone(l.Decision().Target.ID)
	for _, c := range explain(t, kept) {
		if c.Cached != 0 {
			t.Errorf("%+v", c)
		}
	}
	l.Done(router.Outcome{})
}

// Over loadview: a member that left and came back counts as cold, and of 800 that
// came and went nothing is left but the prompts of those that are there.
func TestForgetOverView(t *testing.T) {
	v := newView(t, loadview.Config{}, "a", "b")
	if _, ok := any(v).(router.ForgetNotifier); !ok {
		t.Fatal("a View is no ForgetNotifier")
	}
	s, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(s, v, router.Options{})
	l := route(t, r, t.Context())
	l.Done(router.Outcome{Status: 200})
	other := map[string]string{"a": "b", "b": "a"}[l.Decision().Target.ID]
	setMembers(t, v, other)
	setMembers(t, v, "a", "b")
	for _, c := range explain(t, r) {
		if c.Cached != 0 {
			t.Errorf("%+v", c)
		}
	}

	all := ids(800)
	for i := 0; i < len(all); i += 4 {
		now := all[i : i+4]
		setMembers(t, v, now...)
		for j := range 20 {
			p := router.Prompt{Model: "llama", Text: string(rune('a'+j)) + now[0] + prompt.Text}
			l, err := r.Route(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			l.Done(router.Outcome{Status: 200})
		}
	}
	if st := s.Stats(); st.Prompts != 20 {
		t.Errorf("%d prompts of 20 are left", st.Prompts)
	}
	runtime.KeepAlive(r)
}
