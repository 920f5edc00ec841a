package observe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/warmroute/router"
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/strategy/lmcacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

func check[T comparable](t *testing.T, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v: %v, want %v", what, got, want)
	}
}

func TestReason(t *testing.T) {
	for r, want := range map[router.Reason]string{
		"": "none", router.ReasonWarm: "warm", "a_b_3": "a_b_3", "With a text": "other", "ümlaut": "other", "a-b": "other",
		"A":                                    "other",
		router.Reason(strings.Repeat("a", 64)): strings.Repeat("a", 64), router.Reason(strings.Repeat("a", 65)): "other",
	} {
		check(t, r, observe.Reason(r), want)
	}
}

func TestFallback(t *testing.T) {
	for r, want := range map[router.Reason]string{
		precisecacheaware.ReasonNoTokensLeastLoad: "no_tokens", precisecacheaware.ReasonNoTokensText: "no_tokens",
		precisecacheaware.ReasonUntrustedLeastLoad: "untrusted", precisecacheaware.ReasonUntrustedText: "untrusted",
		router.ReasonWarm: "", router.ReasonLeastLoad: "", lmcacheaware.ReasonCapacity: "",
	} {
		check(t, r, observe.Fallback(precisecacheaware.Name, r), want)
	}
	check(t, "lmcache", observe.Fallback(lmcacheaware.Name, router.ReasonLeastLoad), "no_occupancy")
	check(t, "lmcache", observe.Fallback(lmcacheaware.Name, lmcacheaware.ReasonCapacity), "")
}

func TestTarget(t *testing.T) {
	for id, want := range map[string]string{
		"vllm-1": "vllm-1", "kv@10.0.0.7@llama": "kv@10.0.0.7@llama", "http://vllm:8000": "http://vllm:8000",
		"http://user:pass@vllm:8000/v1?key=s#f": "http://vllm:8000/v1", "http://a@b@vllm": "http://vllm",
		"http://vllm/a@b":    "http://vllm/a@b",
		"http://u:%zz@vllm?": "http://vllm", "http://vllm?a/b@c": "http://vllm", "tcp://": "tcp://",
	} {
		check(t, id, observe.Target(id), want)
	}
}

func TestCause(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for want, o := range map[string]router.Outcome{
		"connection": {Err: errors.New("refused")}, "408": {Status: 408}, "429": {Status: 429}, "5xx": {Status: 503},
		"timeout": {Err: fmt.Errorf("%w", context.DeadlineExceeded)}, "other": {Status: 404},
	} {
		check(t, o, observe.Cause(o), want)
		if want != observe.Other && !slices.Contains(observe.Causes(), want) {
			t.Errorf("%s is none of Causes", want)
		}
	}
	check(t, "i/o timeout", observe.Cause(router.Outcome{Err: timeout}), "timeout")
}

func TestNoTarget(t *testing.T) {
	for want, err := range map[string]error{
		"empty_fleet": &router.NoTargetError{}, "not_ready": &router.NoTargetError{Offered: 2, Excluded: 1, NotReady: 1},
		"excluded": fmt.Errorf("%w", &router.NoTargetError{Offered: 2, Excluded: 2}), "error": errors.New("a text"),
		"shed": &router.NoTargetError{Shed: "too_many"},
	} {
		check(t, err, observe.NoTarget(err), want)
		if !slices.Contains(observe.NoTargets(), want) {
			t.Errorf("%s is none of NoTargets", want)
		}
	}
	check(t, "alone", observe.NoTarget(router.ErrNoTarget), "unknown")
}

func TestCode(t *testing.T) {
	for status, want := range map[int]string{0: "none", 200: "2xx", 404: "4xx", 599: "5xx", 600: "other", -1: "other",
		99: "other"} {
		check(t, status, observe.Code(status), want)
	}
}

func TestJudge(t *testing.T) {
	var u observe.Usage
	d := router.Decision{Cached: 50, Length: 100}
	o := router.Outcome{Stage: router.Finished, PromptTokens: 30}
	if _, _, ok := u.Judge(d, o); ok {
		t.Error("a 0 is believed although no engine ever told more")
	}
	o.CachedTokens = 16
	for _, c := range []struct {
		d                   router.Decision
		predicted, reported int
		ok                  bool
	}{
		{d, 15, 16, true},
		{router.Decision{Cached: 16, Length: 30, Unit: router.Tokens}, 16, 16, true},
		{router.Decision{Cached: 99, Length: 100, Unit: router.Tokens}, 30, 16, true},
		{router.Decision{Cached: -1, Length: 100}, 0, 16, true},
		{router.Decision{}, 0, 0, false},
	} {
		p, r, ok := u.Judge(c.d, o)
		check(t, c.d, [2]int{p, r}, [2]int{c.predicted, c.reported})
		check(t, c.d, ok, c.ok)
	}
	o.CachedTokens = 0
	p, r, ok := u.Judge(d, o)
	check(t, "a 0", [2]int{p, r}, [2]int{15, 0})
	check(t, "a 0", ok, true)
	for _, o := range []router.Outcome{{Stage: router.Failed, PromptTokens: 30}, {Stage: router.Finished}} {
		if _, _, ok := u.Judge(d, o); ok {
			t.Errorf("%+v is judged", o)
		}
	}
}

// Names and targets stay within their bounds for concurrent callers, and a name
// that was given stays the same.
func TestBounds(t *testing.T) {
	names, targets := observe.NewNames(5), observe.NewTargets(5, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	got, gotTargets := map[string]bool{}, map[string]bool{}
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				id := fmt.Sprint("n", i)
				n, x := names.Get(id), targets.Get("f", id)
				if n != id && n != observe.Other || x != id && x != observe.Other {
					t.Errorf("%s is called %s and %s", id, n, x)
				}
				mu.Lock()
				got[n], gotTargets[x] = true, true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	check(t, "names", len(got), 6)
	check(t, "targets", len(gotTargets), 6)
	check(t, "again", names.Get("n0"), names.Get("n0"))

	if n := observe.NewNames(1).Get(strings.Repeat("ü", 200) + "\xff"); len(n) > observe.MaxName || !utf8.ValidString(n) {
		t.Errorf("%q", n)
	}
}

func TestDrop(t *testing.T) {
	targets := observe.NewTargets(4, func(id string) string { return id[:1] })
	for _, id := range []string{"a1", "a2", "b1"} {
		targets.Get("f", id)
	}
	targets.Get("g", "b1")
	check(t, "full", targets.Get("f", "c1"), observe.Other)
	if got := targets.Drop("f", func(id string) bool { return id == "a1" }); len(got) != 0 {
		t.Errorf("%v, but a2 has that name too", got)
	}
	if got := targets.Drop("f", func(id string) bool { return id != "a1" }); len(got) != 2 ||
		!slices.Contains(got, "a") || !slices.Contains(got, "b") {
		t.Errorf("%v", got)
	}
	check(t, "room", targets.Get("f", "c1"), "c")
	check(t, "those left", len(targets.IDs("g"))+len(targets.IDs("f")), 2)
}
