package rivals

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/rendezvous"
)

// have is what a case begins with: text sent to a target, which has ended but
// where flies says that it is in flight, and waits if it has no first token.
type have struct {
	id, text string
	flies    bool
	waits    bool
}

// warm says that id was sent text some time ago.
func warm(id, text string) have { return have{id: id, text: text} }

// flying says that id is generating for text, queuing that text has no token yet.
func flying(id, text string) have  { return have{id: id, text: text, flies: true} }
func queuing(id, text string) have { return have{id: id, text: text, flies: true, waits: true} }

// at makes a target with so many requests in flight.
func at(id string, requests int) router.Target {
	return router.Target{ID: id, Load: router.Load{Known: true, InFlight: requests}}
}

// prefilling makes a target with requests in flight and tokens that wait.
func prefilling(id string, requests, tokens int) router.Target {
	t := at(id, requests)
	t.Load.Prefill = tokens
	return t
}

// text makes n bytes that share nothing with those of another name.
func text(name string, n int) string { return strings.Repeat(name+" ", n/2+1)[:n] }

type rule struct {
	name    string
	had     []have
	targets []router.Target
	prompt  router.Prompt
	want    string // the IDs that may be chosen, in order
}

// check returns the targets that are chosen under many draws.
func check(t *testing.T, newOne func(Common) (*Strategy, error), rules []rule) {
	t.Helper()
	for _, r := range rules {
		var got []string
		for seed := range uint64(40) {
			s, err := newOne(Common{Rand: func() uint64 { return rendezvous.Mix(seed) }})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range r.had {
				send(t, s, h)
			}
			d, err := s.Pick(context.Background(), r.prompt, r.targets)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(got, d.Target.ID) {
				got = append(got, d.Target.ID)
			}
		}
		slices.Sort(got)
		if g := strings.Join(got, " "); g != r.want {
			t.Errorf("%s: %s, want %s", r.name, g, r.want)
		}
	}
}

func send(t *testing.T, s router.Strategy, h have) router.Decision {
	t.Helper()
	d, err := s.Pick(context.Background(), router.Prompt{Text: h.text}, []router.Target{{ID: h.id}})
	if err != nil {
		t.Fatal(err)
	}
	s.Record(d, router.Outcome{Stage: router.Sent})
	if !h.waits {
		s.Record(d, router.Outcome{Stage: router.FirstToken})
	}
	if !h.flies {
		s.Record(d, router.Outcome{Stage: router.Finished})
	}
	return d
}

func TestThreshold(t *testing.T) {
	p := router.Prompt{Text: text("p", 1000)}
	two := func(a, b int) []router.Target { return []router.Target{at("a", a), at("b", b)} }
	queued := two(0, 1)
	queued[0].Load.Queued = 100
	check(t, func(c Common) (*Strategy, error) { return NewThreshold(ThresholdConfig{Common: c}) }, []rule{
		{"0.3 is not above 0.3", []have{warm("a", p.Text[:300])}, two(1, 0), p, "b"},
		{"0.301 is", []have{warm("a", p.Text[:301])}, two(1, 0), p, "a"},
		{"64 apart is balanced", []have{warm("a", p.Text)}, two(64, 0), p, "a"},
		{"65 apart is not", []have{warm("a", p.Text)}, two(65, 0), p, "b"},
		{"1.5 times is balanced", []have{warm("a", p.Text)}, two(195, 130), p, "a"},
		{"more is not", []have{warm("a", p.Text)}, two(196, 130), p, "b"},
		{"either of two holders", []have{warm("a", p.Text), warm("b", p.Text)}, two(9, 0), p, "a b"},
		{"the deeper of two", []have{warm("a", p.Text[:900]), warm("b", p.Text[:901])}, two(0, 9), p, "b"},
		{"what others queue is not seen", nil, queued, p, "a"},
		{"a tie", nil, two(3, 3), p, "a b"},
	})
	check(t, func(c Common) (*Strategy, error) {
		l := LibraryThreshold()
		l.Common = c
		return NewThreshold(l)
	}, []rule{
		{"0.5 is not above 0.5", []have{warm("a", p.Text[:500])}, two(1, 0), p, "b"},
		{"0.501 is", []have{warm("a", p.Text[:501])}, two(1, 0), p, "a"},
		{"32 apart is balanced", []have{warm("a", p.Text)}, two(32, 0), p, "a"},
		{"33 apart is not", []have{warm("a", p.Text)}, two(33, 0), p, "b"},
		{"1.1 times is balanced", []have{warm("a", p.Text)}, two(363, 330), p, "a"},
		{"more is not", []have{warm("a", p.Text)}, two(364, 330), p, "b"},
	})
}

func TestLMetric(t *testing.T) {
	p := router.Prompt{Text: text("p", 4000)} // 1,000 tokens
	rules := func(pending string) []rule {
		return []rule{
			// 250 x 4 against 1,000 x 1.
			{"equal costs: fewer requests", []have{warm("a", p.Text[:3000])}, []router.Target{at("a", 3), at("b", 0)}, p, "b"},
			{"249 x 4", []have{warm("a", p.Text[:3004])}, []router.Target{at("a", 3), at("b", 0)}, p, "a"},
			{"250 x 5", []have{warm("a", p.Text[:3000])}, []router.Target{at("a", 4), at("b", 0)}, p, "b"},
			// 1,001 x 1 for b, which counts.
			{"a token that waits", []have{warm("a", p.Text[:3000])}, []router.Target{at("a", 3), prefilling("b", 0, 1)},
				p, pending},
			{"no tokens at all: fewer requests", []have{warm("a", p.Text), warm("b", p.Text)},
				[]router.Target{at("a", 7), at("b", 6)}, p, "b"},
			{"a tie", nil, []router.Target{at("a", 2), at("b", 2)}, p, "a b"},
		}
	}
	check(t, func(c Common) (*Strategy, error) { return NewLMetric(LMetricConfig{Common: c}) }, rules("a"))
	check(t, func(c Common) (*Strategy, error) { return NewLMetric(LMetricConfig{Common: c, NewTokensOnly: true}) },
		rules("b"))
}

func TestLeastPrefill(t *testing.T) {
	p := router.Prompt{Text: text("p", 4000)}
	had := []have{warm("a", p.Text[:3000])}
	check(t, func(c Common) (*Strategy, error) { return NewLeastPrefill(LeastPrefillConfig{Common: c}) }, []rule{
		{"749 + 250 against 1,000", had, []router.Target{prefilling("a", 50, 749), at("b", 0)}, p, "a"},
		{"751 + 250", had, []router.Target{prefilling("a", 0, 751), at("b", 50)}, p, "b"},
		{"equal: fewer requests", had, []router.Target{prefilling("a", 5, 750), at("b", 4)}, p, "b"},
		{"a tie", had, []router.Target{prefilling("a", 5, 750), at("b", 5)}, p, "a b"},
	})
}

func TestAIBrix(t *testing.T) {
	p := router.Prompt{Text: text("p", 1280)} // 10 blocks
	of := func(loads ...int) (ts []router.Target) {
		for i, n := range loads {
			ts = append(ts, at(string(rune('a'+i)), n))
		}
		return ts
	}
	had := []have{warm("a", p.Text)}
	check(t, func(c Common) (*Strategy, error) { return NewAIBrix(AIBrixConfig{Common: c}) }, []rule{
		{"8 apart is balanced, and mean + sigma", had, of(8, 0), p, "a"},
		{"9 apart is not", had, of(9, 0), p, "b"},
		{"9 apart: the least may match", []have{warm("a", p.Text), warm("c", p.Text[:128])}, of(9, 0, 0), p, "c"},
		// Mean 3, deviation 1.73.
		{"above mean + sigma", had, of(6, 2, 2, 2), p, "b c d"},
		{"then the next best match", []have{warm("a", p.Text), warm("b", p.Text[:640])}, of(6, 2, 2, 2), p, "b"},
		// Mean 3.5, deviation 1.5.
		{"at mean + sigma", had, of(5, 2, 5, 2), p, "a"},
		// Mean 4, deviation 2.94.
		{"the population's deviation", had, of(7, 0, 5), p, "b"},
		{"equal matches: fewer requests", []have{warm("a", p.Text), warm("b", p.Text)}, of(3, 2, 4), p, "b"},
		{"a block and a bit is a block", []have{warm("a", p.Text[:255]), warm("b", p.Text[:128])}, of(1, 1, 0), p, "a b"},
		{"less than a block is nothing", []have{warm("a", p.Text[:127])}, of(1, 0, 0), p, "b c"},
	})
	check(t, func(c Common) (*Strategy, error) {
		return NewAIBrix(AIBrixConfig{Common: c, GateFactor: 2, Sigma: 10})
	}, []rule{
		{"8 > 2 x 3, 8 apart", had, of(8, 0, 0, 0), p, "b c d"},
		{"7 apart", had, of(7, 0, 0, 0), p, "a"},
		{"10 = 2 x 5", had, of(10, 2, 2, 2), p, "a"},
	})
}

func TestLLMDWeighted(t *testing.T) {
	p := router.Prompt{Text: text("p", 640)} // 10 blocks, 160 tokens
	other := text("o", 640)
	two := []router.Target{at("a", 0), at("b", 0)}
	queued := []router.Target{at("a", 0), at("b", 0)}
	queued[0].Load.Queued = 2
	newOne := func(c Common) (*Strategy, error) {
		return NewLLMDWeighted(LLMDWeightedConfig{Common: c, KVTokens: 320})
	}
	check(t, newOne, []rule{
		{"3 + 2 + 2 against 2 + 2", []have{warm("a", p.Text)}, two, p, "a"},
		{"less than a block: 4 against 4", []have{warm("a", p.Text[:63])}, two, p, "a b"},
		// One that waits is being prefilled, and takes half of the KV cache: 1.2 + 2 + 1
		// against 4, 0.9 + 2 + 1 against 4.
		{"one in prefill is no queue", []have{warm("a", p.Text[:256]), queuing("a", other)}, two, p, "a"},
		{"half of the KV cache", []have{warm("a", p.Text[:192]), queuing("a", other)}, two, p, "b"},
		// Two wait: a queue of one. 2.7 + 0 + 1 against 4; 3 + 0 + 1 against 4.
		{"a queue", []have{warm("a", p.Text[:576]), queuing("a", other), queuing("a", other)}, two, p, "b"},
		{"a queue and all of the prompt", []have{warm("a", p.Text), queuing("a", other), queuing("a", other)}, two, p, "a b"},
		{"a shared lead is in use once", []have{warm("a", p.Text[:256]), flying("a", other), flying("a", other)},
			two, p, "a"},
		{"two texts fill it", []have{warm("a", p.Text[:384]), flying("a", other), flying("a", text("q", 640))}, two, p, "b"},
		// Others wait as ours do: a queue of 0 + 2 x 1/1. 3 + 0 + 1 against 4.
		{"others' requests", []have{warm("a", p.Text), queuing("a", other)}, queued, p, "a b"},
		// 0 + 2 x 1/2 where c has the longest, of 2: 3 + 1 + 1 against 4.
		{"others' requests, half of which wait", []have{
			warm("a", p.Text), queuing("a", other), flying("a", other), queuing("c", other), queuing("c", other),
			queuing("c", other),
		}, append(queued[:2:2], at("c", 0)), p, "a"},
		{"others' requests, where ours do not wait", []have{warm("a", p.Text), flying("a", other)}, queued, p, "a"},
	})
}

func TestLLMDAffinity(t *testing.T) {
	p := router.Prompt{Text: text("p", 640)} // 10 blocks, 160 tokens
	two := func(a, b int) []router.Target { return []router.Target{prefilling("a", 0, a), prefilling("b", 0, b)} }
	check(t, func(c Common) (*Strategy, error) { return NewLLMDAffinity(LLMDAffinityConfig{Common: c}) }, []rule{
		{"8 of 10 blocks stick", []have{warm("a", p.Text[:512])}, two(200, 0), p, "a"},
		// 200 + 32.25 against 160.
		{"7 do not: the least tokens", []have{warm("a", p.Text[:511])}, two(200, 0), p, "b"},
		{"120 + 32.25 against 160", []have{warm("a", p.Text[:511])}, two(120, 0), p, "a"},
		{"18 s of work apart", []have{warm("a", p.Text)}, two(286_704, 0), p, "a"},
		{"more than 18 s", []have{warm("a", p.Text)}, two(286_705, 0), p, "b"},
		{"the least of the sticky", []have{warm("a", p.Text), warm("b", p.Text)}, two(2, 1), p, "b"},
		{"the cap", nil, two(5_000_000, 6_000_000), p, "a b"},
		{"below the cap", nil, two(4_000_000, 4_000_001), p, "a"},
	})
}

func TestDynamo(t *testing.T) {
	p := router.Prompt{Text: text("p", 640)} // 10 blocks, 160 tokens
	other := text("o", 640)
	had := []have{warm("a", p.Text)}
	check(t, func(c Common) (*Strategy, error) { return NewDynamo(DynamoConfig{Common: c}) }, []rule{
		{"0 + 10 against 10 + 10", had, []router.Target{at("a", 0), at("b", 0)}, p, "a"},
		{"10 + 10 against 10 + 10", had, []router.Target{prefilling("a", 0, 160), at("b", 0)}, p, "a b"},
		{"one token more", had, []router.Target{prefilling("a", 0, 161), at("b", 0)}, p, "b"},
		{"requests themselves cost nothing", had, []router.Target{at("a", 1000), at("b", 0)}, p, "a"},
		{"a prompt in flight: 0 + 20", []have{warm("a", p.Text), flying("a", other)},
			[]router.Target{at("a", 1), at("b", 0)}, p, "a b"},
		{"the same one in flight: 10 + 10", []have{flying("a", p.Text)}, []router.Target{prefilling("a", 1, 160), at("b", 0)},
			p, "a b"},
		{"a lead of it in flight: 10 + 10", []have{flying("a", p.Text[:320])},
			[]router.Target{prefilling("a", 1, 80), at("b", 0)}, p, "a b"},
		{"part of a block is not cached: 10 + 10", []have{warm("a", p.Text[:63])},
			[]router.Target{at("a", 0), at("b", 0)}, p, "a b"},
	})
	check(t, func(c Common) (*Strategy, error) {
		return NewDynamo(DynamoConfig{Common: c, OverlapCredit: 0.5, PrefillScale: 2})
	}, []rule{
		// 2 x (10 - 5) + 10 against 2 x 10 + 10.
		{"half of the credit", had, []router.Target{prefilling("a", 0, 79), at("b", 0)}, p, "a"},
		{"and the same", had, []router.Target{prefilling("a", 0, 80), at("b", 0)}, p, "a b"},
	})
}

func TestLoadAware(t *testing.T) {
	p := router.Prompt{Text: text("p", 2048)} // 2 chunks
	two := func(a, b int) []router.Target { return []router.Target{at("a", a), at("b", b)} }
	had := []have{warm("a", p.Text)}
	check(t, func(c Common) (*Strategy, error) { return NewLoadAware(LoadAwareConfig{Common: c}) }, []rule{
		{"1 - 1 against 0 + 1", had, two(12, 0), p, "b"},
		{"1 - 1/2 against 0 + 1/2", had, two(3, 1), p, "a b"},
		{"1 - 1/3 against 0 + 1/3", had, two(2, 1), p, "a"},
		{"the mean counts as 1 at least: 1 - 1/2 against 1/2", had, two(1, 0), p, "a b"},
		{"half a hit: 1/2 - 0 against 0", []have{warm("a", p.Text[:1024])}, two(5, 5), p, "a"},
		{"less than a chunk: the lowest rate", []have{warm("a", p.Text[:1023])}, two(0, 50), p, "b"},
	})
}

func TestPrefixAware(t *testing.T) {
	p := router.Prompt{Text: text("p", 300)} // 2 chunks and a rest
	two := []router.Target{at("a", 99), at("b", 0)}
	check(t, func(c Common) (*Strategy, error) { return NewPrefixAware(PrefixAwareConfig{Common: c}) }, []rule{
		{"one chunk each", []have{warm("a", p.Text[:128]), warm("b", p.Text[:255])}, two, p, "a b"},
		{"two against one", []have{warm("a", p.Text[:256]), warm("b", p.Text[:255])}, two, p, "a"},
		{"the rest is a chunk", []have{warm("a", p.Text), warm("b", p.Text[:299])}, two, p, "a"},
		{"none: any", []have{warm("a", p.Text[:127])}, two, p, "a b"},
	})
}

func TestSession(t *testing.T) {
	fleet := []router.Target{at("a", 0), at("b", 99), at("c", 0)}
	none := router.Prompt{Text: "x"}
	check(t, func(c Common) (*Strategy, error) { return NewSession(SessionConfig{Common: c, Window: 3}) }, []rule{
		{"the lowest rate, whatever the load", []have{warm("a", "1"), warm("c", "2")}, fleet, none, "b"},
		{"of the last three", []have{warm("b", "1"), warm("a", "2"), warm("c", "3"), warm("c", "4")}, fleet, none, "b"},
		{"a tie", nil, fleet, none, "a b c"},
	})
	s, err := NewSession(SessionConfig{})
	if err != nil {
		t.Fatal(err)
	}
	places := make(map[string]int)
	for i := range 300 {
		p := router.Prompt{Session: string(rune('A' + i))}
		d, err := s.Pick(context.Background(), p, fleet)
		if err != nil {
			t.Fatal(err)
		}
		places[d.Target.ID]++
		without := slices.DeleteFunc(slices.Clone(fleet), func(t router.Target) bool { return t.ID == "b" })
		e, err := s.Pick(context.Background(), p, without)
		if err != nil {
			t.Fatal(err)
		}
		if d.Target.ID != "b" && e.Target.ID != d.Target.ID {
			t.Fatalf("b left, and a session of %s moved to %s", d.Target.ID, e.Target.ID)
		}
	}
	if len(places) != 3 {
		t.Errorf("300 sessions are placed %v", places)
	}
}

func TestRepliesAreNotRemembered(t *testing.T) {
	for _, e := range All() {
		for _, byHand := range []bool{false, true} {
			s := e.New(nil)
			d, err := s.Pick(context.Background(), router.Prompt{Text: "asked, "}, []router.Target{{ID: "a"}})
			if err != nil {
				t.Fatal(err)
			}
			if byHand {
				d.Memo = nil
			}
			s.Record(d, router.Outcome{Stage: router.Sent})
			s.Record(d, router.Outcome{Stage: router.Failed, Reply: "answered"})
			d, err = s.Pick(context.Background(), router.Prompt{Text: "asked, answered"}, []router.Target{{ID: "a"}})
			if err != nil {
				t.Fatal(err)
			}
			// What failed after a part of its reply has been prefilled and is kept.
			if want := len("asked, "); d.Cached != want && d.Memo != nil {
				t.Errorf("%s: %d cached, want %d", e.Name, d.Cached, want)
			}
		}
	}
}

func TestForget(t *testing.T) {
	s, err := NewThreshold(ThresholdConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p := text("p", 1000)
	send(t, s, warm("a", p))
	for _, want := range []int{1000, 0} {
		d, err := s.Pick(context.Background(), router.Prompt{Text: p}, []router.Target{{ID: "a"}})
		if err != nil || d.Cached != want {
			t.Errorf("%d cached, %v; want %d", d.Cached, err, want)
		}
		s.Forget("a")
	}
}

func TestBadConfig(t *testing.T) {
	for field, err := range map[string]error{
		"CacheThreshold": second(NewThreshold(ThresholdConfig{CacheThreshold: 1.1})),
		"BalanceRel":     second(NewThreshold(ThresholdConfig{BalanceRel: 0.9})),
		"LoadFactor":     second(NewCHWBL(CHWBLConfig{LoadFactor: 0.5})),
		"Replication":    second(NewCHWBL(CHWBLConfig{Replication: -1})),
		"Queue":          second(NewLLMDWeighted(LLMDWeightedConfig{Prefix: 1, Queue: -1})),
		"KVTokens":       second(NewLLMDWeighted(LLMDWeightedConfig{KVTokens: -1})),
		"Threshold":      second(NewLLMDAffinity(LLMDAffinityConfig{Threshold: -0.1})),
		"OverlapCredit":  second(NewDynamo(DynamoConfig{OverlapCredit: 2})),
		"Beta":           second(NewLoadAware(LoadAwareConfig{Beta: -1})),
		"Window":         second(NewSession(SessionConfig{Window: -1})),
		"ChunkBytes":     second(NewPrefixAware(PrefixAwareConfig{ChunkBytes: -1})),
		"Sigma":          second(NewAIBrix(AIBrixConfig{Sigma: -1})),
		"MaxBytes":       second(NewLMetric(LMetricConfig{Common: Common{MaxBytes: -1}})),
		"MaxNodes":       second(NewLeastPrefill(LeastPrefillConfig{Common: Common{MaxNodes: -1}})),
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v, want an error that names %s", err, field)
		}
	}
}

func second(_ *Strategy, err error) error { return err }

func TestAllNamesDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for _, e := range All() {
		if seen[e.Name] || e.Name == "" || e.Source == "" {
			t.Errorf("%q is there twice, or says nothing", e.Name)
		}
		seen[e.Name] = true
		if diff := cmp.Diff(strings.ToLower(strings.ReplaceAll(e.Name, " ", "_")), e.Name); diff != "" {
			t.Error(diff)
		}
	}
}
