package precisecacheaware_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// clock is a virtual one.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// presuming is a strategy over two engines that hold nothing, and never will.
func presuming(t *testing.T, cfg precisecacheaware.Config) (*precisecacheaware.Strategy, *kvtest.Engines, *clock) {
	e, c := kvtest.New(t), &clock{time.Unix(1e9, 0)}
	e.Begin("a", "b")
	cfg.Index, cfg.Now = e.Index, c.now
	return mustNew(t, cfg), e, c
}

// held returns how many tokens of p the strategy believes cached at a target.
func held(t *testing.T, s *precisecacheaware.Strategy, id string, p router.Prompt) int {
	t.Helper()
	return pick(t, s, p, busy(id, 0)).Cached
}

func TestPresumeWindow(t *testing.T) {
	for _, c := range []struct {
		set, want time.Duration
	}{{0, 2 * time.Second}, {time.Minute, time.Minute}, {time.Millisecond, time.Millisecond}} {
		s, e, clock := presuming(t, precisecacheaware.Config{PresumeFor: c.set})
		p := part(0, 20)
		d := pick(t, s, p, busy("a", 0))
		if held(t, s, "a", p) != 0 {
			t.Error("presumed before it was sent")
		}
		s.Record(d, router.Outcome{Stage: router.Sent})
		if n := held(t, s, "a", p); n != 320 {
			t.Errorf("%d presumed at once", n)
		}
		if n := held(t, s, "b", p); n != 0 {
			t.Errorf("%d presumed elsewhere", n)
		}
		clock.t = clock.t.Add(c.want - 1)
		if n := held(t, s, "a", p); n != 320 {
			t.Errorf("%d presumed to the end", n)
		}
		clock.t = clock.t.Add(1)
		if n := held(t, s, "a", p); n != 0 || s.Stats().Presumed != 0 {
			t.Errorf("%d presumed beyond it, %+v", n, s.Stats())
		}
		// The event came: it stays, whatever is presumed.
		e.Store("a", p)
		if n := held(t, s, "a", p); n != 320 {
			t.Errorf("%d of what is resident", n)
		}
	}
}

// What is presumed is whole blocks, never the last token, of one scope, only of
// targets that are trusted, and never less than the index has.
func TestPresumeWhat(t *testing.T) {
	s, e, _ := presuming(t, precisecacheaware.Config{})
	stem := tokens(1, 100)
	send(s, "a", router.Prompt{Model: "m", Tokens: stem[:70]})
	got := map[string]int{}
	for name, p := range map[string]router.Prompt{
		"the same":      {Model: "m", Tokens: stem[:70]},
		"64":            {Model: "m", Tokens: stem[:64]},
		"65":            {Model: "m", Tokens: stem[:65]},
		"longer":        {Model: "m", Tokens: append(slices.Clone(stem), 1, 2, 3)},
		"other model":   {Model: "n", Tokens: stem},
		"other adapter": {Model: "m", Adapter: "x", Tokens: stem},
		"other salt":    {Model: "m", Salt: "x", Tokens: stem},
	} {
		got[name] = held(t, s, "a", p)
	}
	want := map[string]int{"the same": 64, "64": 48, "65": 64, "longer": 64, "other model": 0, "other adapter": 0,
		"other salt": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	p := router.Prompt{Model: "m", Tokens: stem}
	e.Store("a", router.Prompt{Tokens: stem[:80]})
	if n := held(t, s, "a", p); n != 80 {
		t.Errorf("%d, of which the index knows 80", n)
	}
	e.Distrust("a")
	d := pick(t, s, p, busy("a", 0), busy("b", 1))
	if d.Target.ID != "a" || d.Cached != 0 {
		t.Errorf("%s, %d presumed of one that is not trusted", d.Target.ID, d.Cached)
	}
	x := mustNew(t, precisecacheaware.Config{Index: e.Index, PresumeFor: -1})
	send(x, "b", p)
	if n := held(t, x, "b", p); n != 0 || x.Stats().Presumed != 0 {
		t.Errorf("%d presumed where nothing should be", n)
	}
}

// Who fails before the first token takes back its own presumption and no other.
func TestPresumeTakenBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		stays bool
		told  []router.Outcome
	}{
		{"finished", true, []router.Outcome{{Stage: router.Finished}}},
		{"canceled", true, []router.Outcome{{Stage: router.Canceled}}},
		{"failed", false, []router.Outcome{{Stage: router.Failed}}},
		{"failed, twice", false, []router.Outcome{{Stage: router.Failed}, {Stage: router.Failed}}},
		{"failed after the first token", true, []router.Outcome{{Stage: router.FirstToken}, {Stage: router.Failed}}},
		{"failed with output", true, []router.Outcome{{Stage: router.Failed, OutputTokens: 1}}},
	} {
		s, _, _ := presuming(t, precisecacheaware.Config{})
		p := part(0, 20)
		d := pick(t, s, p, busy("a", 0))
		s.Record(d, router.Outcome{Stage: router.Failed}) // was not sent
		s.Record(d, router.Outcome{Stage: router.Sent})
		s.Record(d, router.Outcome{Stage: router.Sent})
		for _, o := range c.told {
			s.Record(d, o)
		}
		if n := held(t, s, "a", p); n > 0 != c.stays {
			t.Errorf("%s: %d presumed", c.name, n)
		}
		other := pick(t, s, p, busy("a", 0))
		s.Record(other, router.Outcome{Stage: router.Sent})
		for _, o := range c.told {
			s.Record(d, o)
		}
		if n := held(t, s, "a", p); n != 320 {
			t.Errorf("%s: %d presumed of another request", c.name, n)
		}
	}
}

// When a request has ended, its engine has reported its blocks, or is about to.
// From then on the events decide, for example that the blocks were removed again.
func TestPresumeEnds(t *testing.T) {
	p := part(0, 20)
	begin := func(t *testing.T) (*precisecacheaware.Strategy, *kvtest.Engines, *clock, router.Decision) {
		s, e, clock := presuming(t, precisecacheaware.Config{})
		d := pick(t, s, p, busy("a", 0))
		s.Record(d, router.Outcome{Stage: router.Sent})
		return s, e, clock, d
	}
	lose := func(e *kvtest.Engines) {
		e.Index.Reset("a")
		e.Begin("a")
	}
	t.Run("told before the end", func(t *testing.T) {
		s, e, _, d := begin(t)
		e.Store("a", p)
		s.Record(d, router.Outcome{Stage: router.Finished})
		if n := held(t, s, "a", p); n != 320 {
			t.Errorf("%d of what is resident", n)
		}
		lose(e)
		if n := held(t, s, "a", p); n != 0 {
			t.Errorf("%d when it is gone", n)
		}
	})
	t.Run("told and gone before the end", func(t *testing.T) {
		s, e, clock, d := begin(t)
		e.Store("a", p)
		lose(e)
		s.Record(d, router.Outcome{Stage: router.Finished})
		clock.t = clock.t.Add(200*time.Millisecond - 1)
		if n := held(t, s, "a", p); n != 320 {
			t.Errorf("%d while the events may be on their way", n)
		}
		clock.t = clock.t.Add(1)
		if n := held(t, s, "a", p); n != 0 {
			t.Errorf("%d when they must have come", n)
		}
	})
	t.Run("ends late", func(t *testing.T) {
		s, _, clock, d := begin(t)
		clock.t = clock.t.Add(1900 * time.Millisecond)
		s.Record(d, router.Outcome{Stage: router.Finished})
		clock.t = clock.t.Add(100 * time.Millisecond)
		if n := held(t, s, "a", p); n != 0 {
			t.Errorf("%d after two seconds", n)
		}
		clock.t = clock.t.Add(time.Second)
		if s.Stats().Presumed != 0 {
			t.Errorf("%+v", s.Stats())
		}
	})
	t.Run("another one goes on", func(t *testing.T) {
		s, _, clock, d := begin(t)
		s.Record(pick(t, s, p, busy("a", 0)), router.Outcome{Stage: router.Sent})
		s.Record(d, router.Outcome{Stage: router.Finished})
		clock.t = clock.t.Add(time.Second)
		if n := held(t, s, "a", p); n != 320 {
			t.Errorf("%d of one under way", n)
		}
	})
}

// Presumptions are whole blocks of the size that the target's own are.
func TestPresumeBlockSize(t *testing.T) {
	s, e, clock := presuming(t, precisecacheaware.Config{})
	e.Say("a", kvindex.Event{Kind: kvindex.Stored, Group: -1, BlockSize: 32, Tokens: tokens(77, 32), Hashes: []uint64{1}})
	p := part(0, 20)
	p.Tokens = append(slices.Clone(p.Tokens), tokens(3, 20)...) // 340
	d := pick(t, s, p, busy("a", 0))
	s.Record(d, router.Outcome{Stage: router.Sent})
	s.Record(d, router.Outcome{Stage: router.Finished}) // from its end on the size is known
	clock.t = clock.t.Add(time.Second)
	if n := held(t, s, "a", p); n != 0 {
		t.Fatalf("%d still presumed", n)
	}
	s.Record(pick(t, s, p, busy("a", 0)), router.Outcome{Stage: router.Sent})
	if n := held(t, s, "a", p); n != 320 {
		t.Errorf("%d of blocks of 32", n)
	}
	p.Tokens = p.Tokens[:319]
	if n := held(t, s, "a", p); n != 288 {
		t.Errorf("%d of blocks of 32", n)
	}
}

// Forget ends presumptions, and what was sent before it ends nothing that was
// sent after. The index is left alone.
func TestPresumeForget(t *testing.T) {
	s, e, clock := presuming(t, precisecacheaware.Config{})
	p := part(0, 20)
	old := pick(t, s, p, busy("a", 0))
	s.Record(old, router.Outcome{Stage: router.Sent})
	send(s, "b", p)
	s.Forget("a")
	if a, b := held(t, s, "a", p), held(t, s, "b", p); a != 0 || b != 320 {
		t.Errorf("%d presumed of the forgotten one, %d of the other", a, b)
	}
	clock.t = clock.t.Add(time.Second)
	send(s, "a", p)
	s.Record(old, router.Outcome{Stage: router.Failed})
	clock.t = clock.t.Add(time.Second)
	if a, b := held(t, s, "a", p), held(t, s, "b", p); a != 320 || b != 0 {
		t.Errorf("%d presumed of what was sent since, %d of what is over", a, b)
	}
	e.Store("a", p)
	s.Forget("a")
	if n := held(t, s, "a", p); n != 320 {
		t.Errorf("%d after Forget of what the engine says", n)
	}
}

// However much is sent, what is presumed is bounded, and the latest stays.
func TestPresumeBounds(t *testing.T) {
	s, _, _ := presuming(t, precisecacheaware.Config{MaxNodes: 1})
	for i := range 5000 {
		p := router.Prompt{Tokens: tokens(i, 40)}
		send(s, "a", p)
		if n := held(t, s, "a", p); n != 32 {
			t.Fatalf("%d of the latest", n)
		}
	}
	if n := s.Stats().Presumed; n != 4096 {
		t.Errorf("%d are presumed", n)
	}
	for i := range 30 { // of 2 MiB
		p := router.Prompt{Tokens: tokens(i, 1<<19)}
		send(s, "b", p)
		if n := held(t, s, "b", p); n == 0 {
			t.Fatal("nothing of the latest")
		}
	}
	if n := s.Stats().Presumed; n != 16 {
		t.Errorf("%d of 2 MiB are presumed", n)
	}
	huge := router.Prompt{Tokens: tokens(1, 2<<20)}
	send(s, "b", huge)
	if n := held(t, s, "b", huge); n > 1<<19 {
		t.Errorf("%d of what is too large", n)
	}
}

// The engines' reports are compared with the index's predictions.
func TestMismatch(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("b")
	e.Store("a", part(0, 10))
	var told []int
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, Mismatch: func(id string, predicted, reported int) {
		if id != "a" && id != "b" {
			t.Errorf("of %s", id)
		}
		told = append(told, predicted, reported)
	}})
	request := func(id string, own int, o router.Outcome) {
		d := pick(t, s, part(own, 10), busy(id, 0))
		s.Record(d, router.Outcome{Stage: router.Sent})
		s.Record(d, o)
		s.Record(d, o)
	}
	finished := func(cached int) router.Outcome {
		return router.Outcome{Stage: router.Finished, PromptTokens: 321, CachedTokens: cached}
	}
	request("a", 1, finished(0))                                               // reports nothing, so far
	request("a", 2, router.Outcome{Stage: router.Finished})                    // no numbers
	request("a", 3, router.Outcome{Stage: router.Canceled, PromptTokens: 321}) // no end
	request("never", 4, finished(160))                                         // not trusted
	request("a", 5, finished(160))                                             // right
	request("a", 6, finished(144))                                             // wrong
	request("a", 7, finished(0))                                               // wrong
	request("b", 8, finished(0))                                               // right
	request("b", 9, finished(0))                                               // wrong: presumed
	if diff := cmp.Diff([]int{160, 144, 160, 0, 160, 0}, told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	st := s.Stats()
	if st.Judged != 5 || st.Mismatched != 3 || st.MismatchedPresumed != 1 {
		t.Errorf("%d judged, %d mismatched, %d of them presumed", st.Judged, st.Mismatched, st.MismatchedPresumed)
	}
}
