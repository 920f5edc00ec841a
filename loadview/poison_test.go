package loadview

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
)

// to counts a request with a text on id.
func to(t testing.TB, v *View, id, text string) router.Flight {
	t.Helper()
	_, f, err := v.Choose(t.Context(), func([]router.Target) (router.Decision, error) {
		return router.Decision{Target: router.Target{ID: id}, Prompt: router.Prompt{Text: text}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var crash = router.Outcome{Status: 500}

// A body to which every engine answers 500, sent again and again, takes no member
// out, and other clients are served.
func TestPoison(t *testing.T) {
	for _, breaker := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			v := newView(t, Config{Breaker: breaker, BreakerFailures: 3}, 3)
			r := router.New(pickLeast{}, v, router.Options{})
			for range 20 {
				err := r.Do(t.Context(), router.Prompt{Text: "poison"},
					func(context.Context, *router.Lease) (router.Outcome, error) {
						return crash, nil
					})
				if err == nil {
					t.Fatal("it was served")
				}
				for _, s := range v.Snapshot() {
					if s.Target.State != router.Ready || s.Failures != 0 {
						t.Fatalf("%+v", s)
					}
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// One member that answers 500 to everything is blamed all the same.
func TestBrokenMemberIsNoPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 3)
		for i := range DefaultCoolAfter {
			text := fmt.Sprint("prompt ", i)
			to(t, v, "vllm-0", text).Done(crash)
			to(t, v, "vllm-1", text).Done(router.Outcome{Status: 200})
		}
		if s := status(t, v, "vllm-0"); s.Target.State != router.Cooling {
			t.Errorf("%+v", s)
		}
	})
}

// Two broken members of four: a request that fails on both and is served by the
// third was no poison.
func TestBrokenMembersAreBlamedAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 4)
		for i := range DefaultCoolAfter {
			text := fmt.Sprint("prompt ", i)
			to(t, v, "vllm-0", text).Done(crash)
			to(t, v, "vllm-1", text).Done(crash)
			if a, b := status(t, v, "vllm-0").Failures, status(t, v, "vllm-1").Failures; a != i || b != i {
				t.Errorf("after the second 500: %d and %d failures, want %d", a, b, i)
			}
			to(t, v, "vllm-2", text).Done(router.Outcome{Status: 200})
			if a, b := status(t, v, "vllm-0").Failures, status(t, v, "vllm-1").Failures; a != i+1 || b != i+1 {
				t.Errorf("after it was served: %d and %d failures, want %d", a, b, i+1)
			}
		}
		for _, id := range []string{"vllm-0", "vllm-1"} {
			if s := status(t, v, id); s.Target.State != router.Cooling {
				t.Errorf("%+v", s)
			}
		}
		time.Sleep(DefaultCoolBase)
		for _, id := range []string{"vllm-0", "vllm-1"} {
			if s := status(t, v, id); s.Target.State != router.Ready {
				t.Errorf("after its cool-down: %+v", s)
			}
		}
	})
}

// The failure that cooled a member, or opened its breaker, is taken back whole.
func TestPoisonTakesBackTheLastStraw(t *testing.T) {
	for _, cfg := range []Config{{Jitter: -1}, {CoolAfter: -1, Breaker: true, BreakerFailures: 3}} {
		v := newView(t, cfg, 2)
		fail(t, v, 2)
		to(t, v, "vllm-0", "poison").Done(crash)
		if s := status(t, v, "vllm-0"); s.Target.State == router.Ready {
			t.Errorf("three failures do nothing: %+v", s)
		}
		changed := v.Changed()
		to(t, v, "vllm-1", "poison").Done(crash)
		if s := status(t, v, "vllm-0"); s.Target.State != router.Ready {
			t.Errorf("it is not taken back: %+v", s)
		}
		if !closed(changed) {
			t.Error("nobody who waits is woken")
		}
		send(t, v, "vllm-0").Done(refused) // two were there before
		if s := status(t, v, "vllm-0"); s.Target.State == router.Ready {
			t.Errorf("more was taken back than the one: %+v", s)
		}
	}
}

func TestSuspectsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{CoolAfter: -1}, 20)
		for i := range 10 * maxSuspects {
			for range 3 {
				to(t, v, fmt.Sprint("vllm-", rand.IntN(20)), fmt.Sprint(i%(2*maxSuspects))).Done(crash)
			}
		}
		if n := len(v.suspects.list); n > maxSuspects {
			t.Errorf("%d suspects", n)
		}
		for _, x := range v.suspects.list {
			if len(x.blamed) > maxBlamed {
				t.Errorf("%d blamed", len(x.blamed))
			}
		}
		time.Sleep(suspectFor)
		to(t, v, "vllm-0", "good").Done(ok)
		if n := len(v.suspects.list); n != 0 || v.suspected.Load() {
			t.Errorf("%d suspects are left", n)
		}
		// Members that left are not kept.
		to(t, v, "vllm-0", "bad").Done(crash)
		set(t, v)
		runtime.GC()
		long := strings.Repeat("x", 3*maxHashed)
		if v.suspects.key(long, nil) == v.suspects.key(long[1:]+"y", nil) ||
			v.suspects.key(long, nil) != v.suspects.key(strings.Clone(long), nil) {
			t.Error("long texts have no identity")
		}
	})
}

// A prompt without a text is known by its tokens.
func TestPoisonByTokens(t *testing.T) {
	v := newView(t, Config{}, 4)
	r := router.New(pickLeast{}, v, router.Options{Backoff: -1})
	for range 20 {
		p := router.Prompt{Tokens: []uint32{1, 2, 3}}
		if ask(t, r, p, func(string) router.Outcome { return crash }) == nil {
			t.Fatal("it was served")
		}
		for _, s := range v.Snapshot() {
			if s.Judged != router.Ready || s.Failures != 0 {
				t.Fatalf("%+v", s)
			}
		}
	}
	long := make([]uint32, maxHashed)
	same := append([]uint32(nil), long...)
	other := append(long[:len(long):len(long)], 0)
	if k := v.suspects.key("", long); k != v.suspects.key("", same) || k == v.suspects.key("", other) {
		t.Error("many tokens have no identity")
	}
}

// An outage in which every engine answers 500 to everything is reported, although each
// request fails on two members; and the first request after it is served.
func TestOutageIsNoPoison(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		synctest.Test(t, func(t *testing.T) {
			var told []bool
			v := newView(t, Config{Trace: Trace{PanicChanged: func(_ *View, on bool) { told = append(told, on) }}}, n)
			r := router.New(pickLeast{}, v, router.Options{Attempts: 2, Backoff: -1})
			for i := range 20 * n {
				p := router.Prompt{Text: fmt.Sprint("question ", i)}
				if err := ask(t, r, p, func(string) router.Outcome { return crash }); errors.Is(err, router.ErrNoTarget) {
					t.Fatalf("%d members, request %d: %v", n, i, err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if len(told) == 0 || !told[0] {
				t.Errorf("%d members: the outage was not reported: %v", n, told)
			}
			for i := range 3 * n {
				if err := ask(t, r, router.Prompt{Text: fmt.Sprint("answered ", i)}, served); err != nil {
					t.Errorf("%d members, after the outage: %v", n, err)
				}
			}
			time.Sleep(DefaultCoolMax)
			states(t, v)
			if v.Panicking() || told[len(told)-1] {
				t.Errorf("%d members: it still panics", n)
			}
		})
	}
}

// Among requests that are served, any number of different poisons harms nobody.
func TestManyPoisons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Breaker: true}, 3)
		r := router.New(pickLeast{}, v, router.Options{Backoff: -1})
		for i := range 200 {
			_ = ask(t, r, router.Prompt{Text: fmt.Sprint("poison ", i)}, func(string) router.Outcome {
				return router.Outcome{Status: 500, RetryAfter: time.Hour}
			})
			for j := range 3 {
				to(t, v, fmt.Sprint("vllm-", j), fmt.Sprint("good ", i)).Done(ok)
			}
			for _, s := range v.Snapshot() {
				if s.Judged != router.Ready {
					t.Fatalf("after %d: %+v", i+1, s)
				}
			}
		}
	})
}
