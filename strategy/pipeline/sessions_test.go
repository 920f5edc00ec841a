package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/pipeline"
)

var start = time.Unix(1e9, 0)

// at returns the target that a session is kept at, "" if it is not: among three
// idle targets, of which none holds anything.
func at(tb testing.TB, s *pipeline.Strategy, p router.Prompt) string {
	tb.Helper()
	p.Text = "a text that nobody holds"
	d := pickFor(tb, s, p, busy("a", 0), busy("b", 0), busy("c", 0))
	if d.Reason != pipeline.ReasonSession {
		return ""
	}
	return d.Target.ID
}

func inSession(key string) router.Prompt {
	return router.Prompt{Model: "m", Session: key, Text: "hello " + key}
}

// A session stays at its target in addition to the affinity: if others hold its
// prompt and have less to do.
func TestSessionComesFirst(t *testing.T) {
	s := mustNew(t, pipeline.Config{})
	p := inSession("s")
	send(t, s, p, "a")
	s.Record(router.Decision{Prompt: router.Prompt{Model: "m", Text: "other, long"}, Target: busy("b", 0)},
		router.Outcome{Stage: router.Sent})
	p.Text = "other, long"
	d := pickFor(t, s, p, busy("a", 2), busy("b", 0))
	if d.Target.ID != "a" || d.Reason != pipeline.ReasonSession || d.Cached != 0 {
		t.Errorf("%s, %s, %d cached", d.Target.ID, d.Reason, d.Cached)
	}
}

// The time runs from the last sign of life, by whatever stage it came.
func TestTTLSlides(t *testing.T) {
	for _, ttl := range []time.Duration{0, 10 * time.Second} {
		c := &clock{start}
		s := mustNew(t, pipeline.Config{Now: c.now, SessionTTL: ttl})
		if ttl == 0 {
			ttl = 300 * time.Second
		}
		p := inSession("s")
		d := pickFor(t, s, p, busy("b", 0))
		for _, stage := range []router.Stage{router.Sent, router.FirstToken, router.Finished} {
			record(s, d, stage)
			c.advance(ttl)
			if got := at(t, s, p); got != "b" {
				t.Fatalf("ttl %v after %v: at %q", ttl, stage, got)
			}
		}
		for range 5 { // repeats
			record(s, pickFor(t, s, p, busy("a", 0), busy("b", 0)), router.Sent)
			c.advance(ttl)
			if got := at(t, s, p); got != "b" {
				t.Fatalf("ttl %v, after a repeat: at %q", ttl, got)
			}
		}
		c.advance(1) // looking, as at does, is no sign of life
		if got := at(t, s, p); got != "" {
			t.Errorf("ttl %v and a moment: at %q", ttl, got)
		}
	}
}

// A reply that takes longer than the time keeps its session all the same.
func TestLongReply(t *testing.T) {
	c := &clock{start}
	s := mustNew(t, pipeline.Config{Now: c.now})
	d := pickFor(t, s, inSession("s"), busy("b", 0))
	record(s, d, router.Sent, router.FirstToken)
	c.advance(time.Hour)
	record(s, d, router.Finished)
	if got := at(t, s, inSession("s")); got != "b" {
		t.Errorf("at %q", got)
	}
}

func TestSessionsOff(t *testing.T) {
	s := mustNew(t, pipeline.Config{SessionTTL: -1})
	send(t, s, inSession("s"), "a")
	if got, n := at(t, s, inSession("s")), s.Sessions().Len(); got != "" || n != 0 {
		t.Errorf("at %q, %d remembered", got, n)
	}
}

// Equal keys of different scopes are different sessions, as are those of tenants
// with their name in the key.
func TestSessionsAreKeptApart(t *testing.T) {
	same := []router.Prompt{
		{Model: "m", Session: "s"}, {Model: "n", Session: "s"}, {Model: "m", Adapter: "s", Session: "s"},
		{Model: "m", Salt: "s", Session: "s"},
		{Model: "ms"}, {Model: "m", Session: "6:tenant:s"}, {Model: "m", Session: "5:other:s"},
		{Model: "m", Adapter: "x", Salt: "y", Session: "s"},
	}
	for i, p := range same {
		s := mustNew(t, pipeline.Config{})
		send(t, s, p, "c")
		for j, q := range same {
			want := ""
			if i == j && p.Session != "" {
				want = "c"
			}
			if got := at(t, s, q); got != want {
				t.Errorf("after %+v, %+v is at %q, want %q", p, q, got, want)
			}
		}
	}
}

// The table is bounded, and the session used least recently goes first, not the
// oldest and not any.
func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	s := mustNew(t, pipeline.Config{MaxSessions: 3})
	for _, k := range []string{"1", "2", "3"} {
		send(t, s, inSession(k), "a")
	}
	send(t, s, inSession("1"), "a")
	at(t, s, inSession("2")) // looking is no use
	send(t, s, inSession("4"), "b")
	for k, want := range map[string]string{"1": "a", "2": "", "3": "a", "4": "b"} {
		if got := at(t, s, inSession(k)); got != want {
			t.Errorf("session %s is at %q, want %q", k, got, want)
		}
	}
	for i := range 1000 {
		send(t, s, inSession(fmt.Sprint("flood ", i)), "c")
	}
	if n := s.Sessions().Len(); n != 3 {
		t.Errorf("%d sessions remembered", n)
	}
}

// Expired sessions are dropped before the bound is reached.
func TestExpiredSessionsGo(t *testing.T) {
	c := &clock{start}
	s := mustNew(t, pipeline.Config{Now: c.now})
	for i := range 500 {
		send(t, s, inSession(fmt.Sprint(i)), "a")
	}
	c.advance(time.Hour)
	for i := range 300 {
		send(t, s, inSession(fmt.Sprint("later ", i)), "a")
	}
	if n := s.Sessions().Len(); n != 300 {
		t.Errorf("%d remembered", n)
	}
}

// A key without bound is not kept.
func TestHugeSessionKey(t *testing.T) {
	s := mustNew(t, pipeline.Config{})
	p := inSession(strings.Repeat("k", 1<<20))
	send(t, s, p, "a")
	if n := s.Sessions().Len(); n != 0 || at(t, s, p) != "" {
		t.Errorf("%d remembered", n)
	}
}

// A target that is not Ready, filtered or overloaded is passed over, and is not
// forgotten for that.
func TestPassedOverNotForgotten(t *testing.T) {
	cooling := busy("a", 0)
	cooling.State = router.Cooling
	for name, away := range map[string]router.Target{"cooling": cooling, "overloaded": busy("a", 3)} {
		s := mustNew(t, pipeline.Config{})
		p := inSession("s")
		send(t, s, p, "a")
		p.Text = "anything else"
		d := pickFor(t, s, p, away, busy("b", 0))
		if d.Target.ID != "b" || d.Reason == pipeline.ReasonSession {
			t.Errorf("%s: went to %s, %s", name, d.Target.ID, d.Reason)
		}
		record(s, d, router.Sent)
		if got := at(t, s, p); got != "a" {
			t.Errorf("%s: at %q after a detour was sent", name, got)
		}
		record(s, d, router.Canceled)
		if got := at(t, s, p); got != "a" {
			t.Errorf("%s: at %q after a detour came to nothing", name, got)
		}
		d = pickFor(t, s, p, away, busy("b", 0))
		record(s, d, router.Sent, router.FirstToken)
		if got := at(t, s, p); got != "b" {
			t.Errorf("%s: at %q after a detour served", name, got)
		}
	}
	// A short queue is waited in.
	s := mustNew(t, pipeline.Config{})
	send(t, s, inSession("s"), "a")
	for n, want := range []string{"a", "a", "a", "b"} {
		p := inSession("s")
		p.Text = "anything else"
		if d := pickFor(t, s, p, busy("a", n), busy("b", 0)); d.Target.ID != want {
			t.Errorf("a queue of %d: went to %s", n, d.Target.ID)
		}
	}
}

// If nothing is bound yet, Sent binds: the second request of a session does not
// wait for the first token of the first.
func TestSecondRequestBeforeTheFirstToken(t *testing.T) {
	s := mustNew(t, pipeline.Config{})
	record(s, pickFor(t, s, inSession("s"), busy("c", 0)), router.Sent)
	if got := at(t, s, inSession("s")); got != "c" {
		t.Errorf("at %q", got)
	}
}

func TestAfterFailure(t *testing.T) {
	dead, asked := router.Outcome{Stage: router.Failed}, router.Outcome{Stage: router.Failed, Status: 400}
	full := router.Outcome{Stage: router.Failed, Status: 503}
	for _, c := range []struct {
		name   string
		before bool // the session was served at a before
		token  bool // the request that fails has shown one
		o      router.Outcome
		want   string
	}{
		{"new, dead", false, false, dead, ""},
		{"new, full", false, false, full, ""},
		{"new, the client's fault", false, false, asked, ""},
		{"new, canceled", false, false, router.Outcome{Stage: router.Canceled}, "a"},
		{"old, dead", true, false, dead, ""},
		{"old, full", true, false, full, ""},
		{"old, the client's fault", true, false, asked, "a"},
		{"new, not sent", false, false, router.Outcome{Stage: router.Failed, NotSent: true}, ""},
		{"old, not sent", true, false, router.Outcome{Stage: router.Failed, NotSent: true}, "a"},
		{"new, dead after a token", false, true, dead, ""},
		{"new, canceled after a token", false, true, router.Outcome{Stage: router.Canceled}, "a"},
	} {
		s := mustNew(t, pipeline.Config{})
		if c.before {
			send(t, s, inSession("s"), "a")
		}
		d := pickFor(t, s, inSession("s"), busy("a", 0))
		record(s, d, router.Sent)
		if c.token {
			record(s, d, router.FirstToken)
		}
		s.Record(d, c.o)
		if got := at(t, s, inSession("s")); got != c.want {
			t.Errorf("%s: at %q, want %q", c.name, got, c.want)
		}
	}
}

// The failure of a detour, or of a request that was under way before the session
// moved, does not release what another target has.
func TestAnotherTargetsFailure(t *testing.T) {
	s := mustNew(t, pipeline.Config{})
	d := pickFor(t, s, inSession("s"), busy("b", 0))
	record(s, d, router.Sent)
	send(t, s, inSession("s"), "a")
	record(s, d, router.Failed)
	if got := at(t, s, inSession("s")); got != "a" {
		t.Errorf("at %q", got)
	}
}

func TestForgetReleases(t *testing.T) {
	s := mustNew(t, pipeline.Config{})
	send(t, s, inSession("1"), "a")
	send(t, s, inSession("2"), "b")
	late := pickFor(t, s, inSession("3"), busy("a", 0))
	record(s, late, router.Sent)
	s.Forget("a")
	record(s, late, router.FirstToken, router.Finished) // of the life before
	for k, want := range map[string]string{"1": "", "2": "b", "3": ""} {
		if got := at(t, s, inSession(k)); got != want {
			t.Errorf("session %s at %q, want %q", k, got, want)
		}
	}
	send(t, s, inSession("1"), "a")
	if got := at(t, s, inSession("1")); got != "a" {
		t.Errorf("at %q, though it came back", got)
	}
	for i := range 10_000 {
		s.Forget(fmt.Sprint("gone ", i))
	}
	send(t, s, inSession("1"), "a")
	if got := at(t, s, inSession("1")); got != "a" {
		t.Errorf("at %q after many were forgotten", got)
	}
}

// A reload hands over what was learned of sessions and prompts, also of requests
// under way.
func TestHandOver(t *testing.T) {
	before := mustNew(t, pipeline.Config{})
	send(t, before, inSession("1"), "b")
	late := pickFor(t, before, inSession("2"), busy("c", 0))
	record(before, late, router.Sent)
	after := mustNew(t, pipeline.Config{Sessions: before.Sessions(), Trie: before.Trie(), SessionTTL: time.Minute,
		LoadWeight: 3})
	record(before, late, router.FirstToken)
	for k, want := range map[string]string{"1": "b", "2": "c"} {
		if got := at(t, after, inSession(k)); got != want {
			t.Errorf("session %s at %q, want %q", k, got, want)
		}
	}
	p := inSession("1")
	p.Session = ""
	if d := pickFor(t, after, p, busy("a", 0), busy("b", 0)); d.Target.ID != "b" || d.Cached != d.Length {
		t.Errorf("the prompt goes to %s, %d of %d cached", d.Target.ID, d.Cached, d.Length)
	}
}

// Through a Router: a session follows a failover at once and stays there.
func TestFailover(t *testing.T) {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}); err != nil {
		t.Fatal(err)
	}
	s := mustNew(t, pipeline.Config{})
	r := router.New(s, view, router.Options{Backoff: -1})
	home, dead := "", ""
	ask := func() (path []string) {
		err := r.Do(t.Context(), inSession("s"), func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			id := l.Decision().Target.ID
			path = append(path, id)
			if id == dead {
				return router.Outcome{}, errors.New("connection refused")
			}
			l.FirstToken()
			return router.Outcome{Status: 200}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	home = ask()[0]
	for range 5 {
		if path := ask(); len(path) != 1 || path[0] != home {
			t.Fatalf("went %v from %s", path, home)
		}
	}
	dead = home
	path := ask()
	if len(path) != 2 || path[0] != dead || path[1] == dead {
		t.Fatalf("the failover went %v", path)
	}
	home = path[1]
	for range 5 { // the dead one is Ready still: one failure cools nobody down
		if path := ask(); len(path) != 1 || path[0] != home {
			t.Fatalf("went %v after the failover to %s", path, home)
		}
	}
}

// One hot session, all at once, spreads over the fleet.
func TestHotSessionMeltsNobody(t *testing.T) {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}}); err != nil {
		t.Fatal(err)
	}
	s := mustNew(t, pipeline.Config{})
	r := router.New(s, view, router.Options{})
	send(t, s, inSession("hot"), "a")
	var mu sync.Mutex
	counts := map[string]int{}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			l, err := r.Route(t.Context(), inSession("hot"))
			if err != nil {
				t.Error(err)
				return
			}
			l.FirstToken()
			mu.Lock()
			counts[l.Decision().Target.ID]++ // none of them ends
			mu.Unlock()
		})
	}
	wg.Wait()
	for _, n := range counts {
		if len(counts) != 4 || n > 80 {
			t.Fatalf("spread as %v", counts)
		}
	}
	t.Log(counts)
}
