package router_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/warmroute/router"
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

// The strategy of a Router forgets what its fleet says is gone, without being told
// by hand; one that cannot forget is not registered.
func TestForgetWired(t *testing.T) {
	a := &announcer{pool: newPool(ready("a", "b")...)}
	r := router.New(cacheAware(t), a, router.Options{})
	among := r.Among(func(router.Target) bool { return true })
	router.New(first, a, router.Options{})
	if n := a.hearing(); n != 1 {
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
}

// Routers that come and go leave nothing with their fleet, and one that is still
// used, if only through Among or a lease, goes on being told.
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
