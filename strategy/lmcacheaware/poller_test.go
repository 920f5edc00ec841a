package lmcacheaware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/strategy/lmcacheaware"
)

var _ lmcacheaware.Source = (*lmcache.Poller)(nil)

// cache is an LMCache that says what a test wants.
func cache(t *testing.T, says string) (url string, say func(string)) {
	var body atomic.Value
	body.Store(says)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if body.Load() == "" {
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, body.Load().(string))
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func(s string) { body.Store(s) }
}

// Over real sockets: the poller says, and the picks follow.
func TestWithThePoller(t *testing.T) {
	a, sayA := cache(t, `{"occupancy": 0.2}`)
	b, sayB := cache(t, `{"is_healthy": true, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.3}}}`)
	c, sayC := cache(t, "lmcache_mp_l1_usage_ratio 0.7\n")
	provider := func(id, url string) lmcache.Target {
		return lmcache.Target{ID: id, Endpoint: url, Refresh: 10 * time.Millisecond, Timeout: 20 * time.Second,
			Stale: time.Minute}
	}
	poller, err := lmcache.New(lmcache.Config{Targets: []lmcache.Target{provider("a", a), provider("b", b),
		provider("c", c)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := mustNew(t, lmcacheaware.Config{Source: poller})
	ts := []router.Target{busy("a", 1), busy("b", 1), busy("c", 1), busy("no cache", 0)}
	takes := func(want string, why router.Reason) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			d := pickFor(t, s, p0, ts...)
			if d.Target.ID == want && d.Reason == why {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s for %q, want %s for %q: %+v", d.Target.ID, d.Reason, want, why, poller.Snapshot())
			}
		}
	}
	takes("no cache", router.ReasonLeastLoad) // before the first poll
	go func() { done <- poller.Run(ctx) }()
	takes("a", lmcacheaware.ReasonCapacity) // 0.8 free, against half of the way to the watermark
	sayA(`{"occupancy": 0.9}`)              // fuller than b
	takes("b", lmcacheaware.ReasonCapacity) //
	sayB(`<html>`)                          // neutral
	takes("a", lmcacheaware.ReasonCapacity) //
	sayA(`{"occupancy": 0.1, "cache_available": false}`)
	takes("c", lmcacheaware.ReasonCapacity) // full, but there
	sayC("")
	takes("no cache", lmcacheaware.ReasonCapacity) // neutral as b and c are, and idle; a is not available
	sayA("")
	takes("no cache", router.ReasonLeastLoad)
	sayB(`{"is_healthy": true, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.3}}}`)
	takes("b", lmcacheaware.ReasonCapacity)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}
