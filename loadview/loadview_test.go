package loadview

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
)

func newView(t testing.TB, cfg Config, n int) *View {
	t.Helper()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ms := make([]Member, n)
	for i := range ms {
		ms[i] = Member{ID: fmt.Sprintf("vllm-%d", i)}
	}
	if err := v.Set(ms); err != nil {
		t.Fatal(err)
	}
	return v
}

// leastLoaded is the least that a strategy does.
func leastLoaded(ts []router.Target) (router.Decision, error) {
	best := -1
	for i := range ts {
		if ts[i].State == router.Ready && (best < 0 || ts[i].Load.InFlight < ts[best].Load.InFlight) {
			best = i
		}
	}
	if best < 0 {
		return router.Decision{}, &router.NoTargetError{Offered: len(ts), NotReady: len(ts)}
	}
	return router.Decision{Target: ts[best], Length: 400}, nil
}

// send counts a request on id, whatever its state.
func send(t testing.TB, v *View, id string) router.Flight {
	t.Helper()
	_, f, err := v.Choose(t.Context(), func([]router.Target) (router.Decision, error) {
		return router.Decision{Target: router.Target{ID: id}, Length: 400}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// status finds id in a Snapshot.
func status(t testing.TB, v *View, id string) Status {
	t.Helper()
	for _, s := range v.Snapshot() {
		if s.Target.ID == id {
			return s
		}
	}
	t.Fatalf("no %q in the Snapshot", id)
	return Status{}
}

func TestThousandAtOnce(t *testing.T) {
	v := newView(t, Config{}, 8)
	flights := make([]router.Flight, 1000)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range flights {
		wg.Go(func() {
			<-start
			_, f, err := v.Choose(t.Context(), leastLoaded)
			if err != nil {
				t.Error(err)
			}
			flights[i] = f
		})
	}
	close(start)
	wg.Wait()
	var counts []int
	for _, s := range v.Snapshot() {
		counts = append(counts, s.Target.Load.InFlight)
	}
	if least, most := slices.Min(counts), slices.Max(counts); most-least > 2 || counts[0] == 0 {
		t.Errorf("in flight: %v", counts)
	}
	for _, f := range flights {
		f.Done(router.Outcome{Stage: router.Finished})
	}
	for _, s := range v.Snapshot() {
		if l := s.Target.Load; l != (router.Load{Known: true}) {
			t.Errorf("%s ends with %+v", s.Target.ID, l)
		}
	}
}

func TestPanicInPick(t *testing.T) {
	v := newView(t, Config{}, 2)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not reach the caller")
			}
		}()
		_, _, _ = v.Choose(t.Context(), func([]router.Target) (router.Decision, error) { panic("boom") })
	}()
	for _, s := range v.Snapshot() {
		if s.Target.Load.InFlight != 0 {
			t.Errorf("%s counted a panic", s.Target.ID)
		}
	}
	send(t, v, "vllm-0").Done(router.Outcome{}) // the lock is free
}

func TestChooseErrors(t *testing.T) {
	v := newView(t, Config{FullFor: -1}, 1)
	if _, f, err := v.Choose(t.Context(), nil); err == nil || f != nil {
		t.Errorf("no pick: %v, %v", f, err)
	}
	shared := &router.NoTargetError{Offered: 7}
	send(t, v, "vllm-0").Done(router.Outcome{Stage: router.Failed, Status: 429, RetryAfter: time.Minute})
	_, _, err := v.Choose(t.Context(), func([]router.Target) (router.Decision, error) { return router.Decision{}, shared })
	var got *router.NoTargetError
	if !errors.As(err, &got) || got.RetryAfter <= 50*time.Second || got.Offered != 7 || shared.RetryAfter != 0 {
		t.Errorf("error %+v, from %+v", err, shared)
	}
	own := &router.NoTargetError{RetryAfter: time.Hour}
	if _, _, err := v.Choose(t.Context(), func([]router.Target) (router.Decision, error) {
		return router.Decision{},
			own
	}); err != own {
		t.Errorf("an error with its own RetryAfter became %v", err)
	}
}

func TestPrefill(t *testing.T) {
	for _, c := range []struct {
		cached, length int
		unit           router.Unit
		want           int
	}{
		{0, 400, router.Bytes, 100},
		{390, 400, router.Bytes, 2},
		{30, 400, router.Tokens, 370},
		{500, 400, router.Tokens, 0},
		{-5, 400, router.Tokens, 400},
		{0, -1, router.Tokens, 0},
		{math.MinInt, math.MaxInt, router.Tokens, toInt(maxPrefill)},
	} {
		v := newView(t, Config{}, 1)
		_, f, err := v.Choose(t.Context(), func(ts []router.Target) (router.Decision, error) {
			return router.Decision{Target: ts[0], Cached: c.cached, Length: c.length, Unit: c.unit}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := status(t, v, "vllm-0").Target.Load.Prefill; got != c.want {
			t.Errorf("%d of %d %v: Prefill %d, want %d", c.cached, c.length, c.unit, got, c.want)
		}
		f.FirstToken()
		f.FirstToken()
		want := router.Load{Known: true, InFlight: 1}
		if got := status(t, v, "vllm-0").Target.Load; got != want {
			t.Errorf("after the first token: %+v", got)
		}
		f.Done(router.Outcome{})
		f.FirstToken()
		f.Done(router.Outcome{})
		if got := status(t, v, "vllm-0").Target.Load; got != (router.Load{Known: true}) {
			t.Errorf("after the end: %+v", got)
		}
	}
}

func TestLeaveAndComeBack(t *testing.T) {
	v := newView(t, Config{CoolAfter: 1}, 2)
	old := send(t, v, "vllm-0")
	if err := v.Set([]Member{{ID: "vllm-1"}}); err != nil {
		t.Fatal(err)
	}
	if err := v.Set([]Member{{ID: "vllm-0"}, {ID: "vllm-1"}}); err != nil {
		t.Fatal(err)
	}
	young := send(t, v, "vllm-0")
	old.FirstToken()
	old.Done(router.Outcome{Stage: router.Failed, Status: 500})
	want := router.Target{ID: "vllm-0", Load: router.Load{Known: true, InFlight: 1, Prefill: 100}}
	if diff := cmp.Diff(want, status(t, v, "vllm-0").Target); diff != "" {
		t.Errorf("the new member is not what it was (-want +got):\n%s", diff)
	}
	young.Done(router.Outcome{})
	if n := status(t, v, "vllm-0").Target.Load.InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// A strategy remembers what it resolved an ID to by the string itself.
func TestSetKeepsTheString(t *testing.T) {
	v := newView(t, Config{}, 1)
	a := v.Snapshot()[0].Target.ID
	if err := v.Set([]Member{{ID: strings.Clone(a), Weight: 3}}); err != nil {
		t.Fatal(err)
	}
	b := v.Snapshot()[0].Target
	if unsafe.StringData(a) != unsafe.StringData(b.ID) || b.Weight != 3 {
		t.Errorf("Set replaced the string or kept the weight: %+v", b)
	}
}

func TestTenHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 1)
		f := send(t, v, "vllm-0")
		time.Sleep(10 * time.Hour)
		send(t, v, "vllm-0").Done(router.Outcome{})
		if l := status(t, v, "vllm-0").Target.Load; l.InFlight != 1 || l.Prefill != 100 {
			t.Errorf("after 10 hours: %+v", l)
		}
		f.Done(router.Outcome{Stage: router.Canceled})
		if l := status(t, v, "vllm-0").Target.Load; l.InFlight != 0 || l.Prefill != 0 {
			t.Errorf("after its end: %+v", l)
		}
	})
}

func TestBadSetChangesNothing(t *testing.T) {
	v := newView(t, Config{}, 2)
	before := v.Snapshot()
	err := v.Set([]Member{{ID: "x"}, {}, {ID: "y", Weight: math.Inf(1)}, {ID: "x"}})
	for _, want := range []string{
		`Members[1].ID is ""`, `member "y": Members[2].Weight is +Inf`,
		`Members[3].ID is "x"; it must be another one than that of Members[0]`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if diff := cmp.Diff(before, v.Snapshot()); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
}

func TestBadConfig(t *testing.T) {
	_, err := New(Config{CoolBase: -1, CoolMax: -1, Jitter: 2, BreakerFailures: -1, BreakerOpen: -1})
	for _, field := range []string{"CoolBase", "CoolMax", "Jitter", "BreakerFailures", "BreakerOpen"} {
		if err == nil || !strings.Contains(err.Error(), "loadview: "+field+" is ") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	if _, err := New(Config{Jitter: math.NaN()}); err == nil {
		t.Error("a Jitter of NaN passed")
	}
	if _, err := New(Config{CoolBase: 2, CoolMax: 1}); err == nil {
		t.Error("CoolMax below CoolBase passed")
	}
	for _, c := range []Config{{}, {CoolMax: time.Second}, {CoolBase: time.Hour}, {Jitter: -1}, {CoolAfter: -1}} {
		if _, err := New(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 4)
		queued := func() (qs []int) {
			for _, s := range v.Snapshot() {
				qs = append(qs, s.Target.Load.Queued)
			}
			return qs
		}
		for i, n := range []int{3, 8} {
			if err := v.SetQueued(fmt.Sprintf("vllm-%d", i), n); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if diff := cmp.Diff([]int{3, 8, 6, 6}, queued()); diff != "" {
			t.Errorf("the mean does not stand in (-want +got):\n%s", diff)
		}
		if s := v.Snapshot(); !s[0].QueuedKnown || s[0].QueuedAge != time.Second || s[2].QueuedKnown || s[2].QueuedAge != 0 {
			t.Errorf("ages: %+v", s)
		}
		if err := v.SetQueued("vllm-1", -1); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{3, 3, 3, 3}, queued()); diff != "" {
			t.Errorf("an unknown one (-want +got):\n%s", diff)
		}
	})
}

func TestTraceOrder(t *testing.T) {
	var log []string
	say := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	var v *View
	v, err := New(Config{Trace: Trace{
		Joined: func(m Member) { say("joined %s", m.ID) },
		Left:   func(id string, n int) { say("left %s with %d", id, n) },
		Forget: func(id string) { say("forget %s", id) },
		StateChanged: func(id string, from, to router.State) {
			say("%s: %v to %v", id, from, to)
			if to == router.Unhealthy { // a hook may use the View
				if err := v.SetUnhealthy(id, false); err != nil {
					t.Error(err)
				}
				say("back from the hook")
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	set := func(ms ...Member) {
		if err := v.Set(ms); err != nil {
			t.Fatal(err)
		}
	}
	set(Member{ID: "a"}, Member{ID: "b", Draining: true})
	send(t, v, "a")
	set(Member{ID: "b"}, Member{ID: "c"})
	if err := v.SetUnhealthy("c", true); err != nil {
		t.Fatal(err)
	}
	v.Forget("c")
	want := []string{
		"joined a", "joined b", "left a with 1", "forget a", "joined c", "b: draining to ready",
		"c: ready to unhealthy", "back from the hook", "c: unhealthy to ready", "forget c",
	}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A hook that hangs holds up nobody, and what waits for it does not pile up.
func TestSlowHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var log []string
		v := newView(t, Config{Trace: Trace{StateChanged: func(id string, from, to router.State) {
			log = append(log, fmt.Sprintf("%s: %v to %v", id, from, to))
			if len(log) == 1 {
				<-hold
			}
		}}}, 2)
		go func() {
			if err := v.SetUnhealthy("vllm-0", true); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		for i := range 1001 {
			for _, id := range []string{"vllm-0", "vllm-1"} {
				if err := v.SetDraining(id, i%2 == 0); err != nil {
					t.Fatal(err)
				}
			}
			send(t, v, "vllm-1").Done(router.Outcome{})
		}
		v.mu.Lock()
		if n := len(v.changed); n > 2 {
			t.Errorf("%d changes of 2 members wait", n)
		}
		v.mu.Unlock()
		close(hold)
		synctest.Wait()
		want := []string{"vllm-0: ready to unhealthy", "vllm-0: unhealthy to draining", "vllm-1: ready to draining"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// recorded returns a recorded metrics page.
func recorded(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("enginepage", "testdata", "recorded", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
