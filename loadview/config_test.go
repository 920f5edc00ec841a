package loadview

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/loadview/enginepage"
)

// configErrors returns the *router.ConfigError values in err.
func configErrors(err error) (all []*router.ConfigError) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, configErrors(e)...)
		}
		return all
	}
	var c *router.ConfigError
	if errors.As(err, &c) {
		all = append(all, c)
	}
	return all
}

func TestTypedErrors(t *testing.T) {
	_, err := New(Config{
		CoolMax: -1, Jitter: 2, Scrape: Scrape{Timeout: -1, Dialects: []enginepage.Dialect{{Name: "x"}}},
		Probe: Probe{Failures: -1}, Egress: egress.Policy{AllowHosts: []string{"ok", "a b"}},
	})
	var fields []string
	for _, e := range configErrors(err) {
		fields = append(fields, e.Field)
	}
	want := []string{"CoolMax", "Jitter", "Scrape.Timeout", "Scrape.Dialects[0].Running.Name", "Probe.Failures",
		"Egress.AllowHosts[1]"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("(-want +got)\n%s\n%v", diff, err)
	}
	v := newView(t, Config{}, 0)
	err = v.Set([]Member{{ID: "a"}, {ID: "b", Metrics: "http://169.254.169.254/"}})
	var denied *egress.DeniedError
	if all := configErrors(err); len(all) != 1 || all[0].Field != "Members[1].Metrics" || !errors.As(err, &denied) {
		t.Errorf("%v", err)
	}
}

func TestSetConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1}, 1)
		fail := func() { send(t, v, "vllm-0").Done(router.Outcome{Stage: router.Failed}) }
		fail()
		if s := status(t, v, "vllm-0"); s.Target.State != router.Ready {
			t.Fatalf("%+v", s)
		}
		if err := v.SetConfig(Config{CoolAfter: 2, CoolBase: time.Minute, Jitter: -1}); err != nil {
			t.Fatal(err)
		}
		fail()
		if s := status(t, v, "vllm-0"); s.Target.State != router.Cooling || s.ReadyIn != time.Minute {
			t.Errorf("the new settings do not hold: %+v", s)
		}
		before := *v.cfg.Load()
		if err := v.SetConfig(Config{CoolBase: -1}); err == nil {
			t.Error("a wrong Config was taken over")
		}
		if v.cfg.Load().CoolBase != before.CoolBase {
			t.Error("a wrong Config changed something")
		}
	})
}

// Run follows the new times, and a policy that denies what it allowed.
func TestSetConfigWhileItRuns(t *testing.T) {
	e := newEngine(t)
	e.running.Store(7)
	v := newView(t, Config{Scrape: Scrape{Interval: time.Hour}}, 0)
	set(t, v, Member{ID: "a", Metrics: e.URL})
	run(t, v)
	if err := v.SetConfig(fast()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the page is read at the new interval", func() bool { return queued(t, v, "a") == 7 })
	denying := fast()
	denying.Egress = egress.Policy{BlockLoopback: true}
	if err := v.SetConfig(denying); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the scrape is denied", func() bool {
		var denied *egress.DeniedError
		return errors.As(stateOf(v, "a").ScrapeError, &denied)
	})
	if err := v.SetConfig(fast()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is allowed again", func() bool { return stateOf(v, "a").ScrapeError == nil })
}

// An engine of the user's own is read by a dialect of the user's own.
func TestOwnDialect(t *testing.T) {
	e := newEngine(t)
	e.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = io.WriteString(w, "ours_load{kind=\"run\"} 4\nours_load{kind=\"wait\"} 2\n")
		return true
	})
	cfg := fast()
	cfg.Scrape.Dialects = []enginepage.Dialect{{
		Name:    "ours",
		Running: enginepage.Series{Name: "ours_load", Labels: map[string]string{"kind": "run"}},
		Waiting: []enginepage.Series{{Name: "ours_load", Labels: map[string]string{"kind": "wait"}}},
	}}
	v := newView(t, cfg, 0)
	set(t, v, Member{ID: "a", Metrics: e.URL})
	run(t, v)
	eventually(t, "its load is known", func() bool { return queued(t, v, "a") == 6 })
	if got, ok := v.Engine("a"); !ok || got.Dialect != "ours" || got.Running != 4 || got.Waiting != 2 {
		t.Errorf("%+v, %v", got, ok)
	}
}

// A clock that is set back does not keep a member cooling.
func TestClockSetBack(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	v := newView(t, Config{CoolAfter: 1, Jitter: -1, Now: func() time.Time { return now }}, 1)
	send(t, v, "vllm-0").Done(router.Outcome{Stage: router.Failed})
	ready := func() bool { return status(t, v, "vllm-0").Target.State == router.Ready }
	now = now.Add(4 * time.Second)
	if ready() {
		t.Error("ready too early")
	}
	now = now.Add(-time.Hour)
	if ready() {
		t.Error("the step back made time")
	}
	now = now.Add(2 * time.Second)
	if !ready() {
		t.Errorf("it still cools: %+v", status(t, v, "vllm-0"))
	}
	// Answers in the opposite order are no step back.
	c := newClock(func() time.Time { return now })
	now = now.Add(time.Millisecond)
	c.since()
	now = now.Add(-time.Microsecond)
	if c.since() != time.Millisecond {
		t.Error("time went back")
	}
	now = now.Add(time.Microsecond)
	if c.since() != time.Millisecond {
		t.Errorf("%v, want 1ms", c.since())
	}
}
