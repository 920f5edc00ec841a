package kvindex

import (
	"errors"
	"testing"

	router "github.com/warmroute/router"
)

// TestRecomputed: an engine that always reuses one block fewer than it holds (EAGLE and MTP in vLLM
// up to 0.32) is found by its reports.
func TestRecomputed(t *testing.T) {
	fill := func(w *wired) { w.say(stored16([]int{1, 2, 3, 4}, nil, ids(1000, 1064))) }
	p := text(ids(1000, 1064), 1)
	report := func(w *wired, reported ...int) {
		for _, n := range reported {
			held := w.x.Match(p, []string{"a"}, nil)[0] + w.x.Recomputed("a")
			w.x.Report("a", held, n)
		}
	}
	for name, c := range map[string]struct {
		recompute int
		reported  []int
		want      int
	}{
		"nothing is known":      {0, nil, 64},
		"too few":               {0, []int{48, 48}, 64},
		"one less":              {0, []int{48, 48, 48}, 48},
		"stays":                 {0, []int{48, 48, 48, 48, 48, 48}, 48},
		"not in a row":          {0, []int{48, 48, 64, 48, 48}, 64},
		"and back":              {0, []int{48, 48, 48, 64, 64, 64}, 64},
		"an eviction between":   {0, []int{48, 48, 48, 16, 48}, 48},
		"two less":              {0, []int{32, 32, 32}, 32},
		"more than is held":     {0, []int{80, 80, 80}, 64},
		"no whole blocks":       {0, []int{50, 50, 50}, 64},
		"nothing reported":      {0, []int{0, 0, 0, 0}, 64},
		"set":                   {1, nil, 48},
		"set, and reports":      {1, []int{64, 64, 64, 64}, 48},
		"never, though it does": {-1, []int{48, 48, 48, 48}, 64},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWired(t, Config{Recompute: c.recompute})
			fill(w)
			report(w, c.reported...)
			w.cached(c.want, p)
			w.cached(max(0, 16+c.want-64), text(ids(1000, 1016), 1)) // one block, or none
			w.cached(0, text(ids(1, 17), 1))
			if got := w.x.Recomputed("a"); got != 64-c.want {
				t.Errorf("Recomputed: %d", got)
			}
			w.x.Reset("a") // the engine is likely to come back as it was
			w.seq = 0
			fill(w)
			w.cached(c.want, p)
		})
	}
	_, err := New(Config{Recompute: MaxRecompute + 1})
	var bad *router.ConfigError
	if !errors.As(err, &bad) || bad.Field != "Recompute" {
		t.Errorf("%v", err)
	}
	newIndex(t, Config{}).Report("nobody", 64, 48)
}

// TestAdapterNames: the name of an adapter in a request is not always that in the events.
func TestAdapterNames(t *testing.T) {
	prompt := func(model, adapter string) router.Prompt {
		p := text(ids(1000, 1032), 1)
		p.Model, p.Adapter = model, adapter
		return p
	}
	w := newWired(t, Config{Adapters: map[string]string{"sql": "adapter", "old": "id:7"}})
	e := stored16([]int{1, 2}, nil, ids(1000, 1032))
	e[15] = "adapter"
	w.say(e)
	for _, c := range []struct {
		model, adapter string
		want           int
	}{
		{"base", "adapter", 32},
		{"base:adapter", "", 32},             // SGLang's
		{"base: adapter ", "", 32},           // which strips
		{"s3://bucket/base:adapter", "", 32}, // a served name with colons
		{"base", "base:adapter", 32},         // prompt.Parser.Adapters
		{"base:adapter", "base:adapter", 32}, //
		{"sql", "", 32},                      // Config.Adapters
		{"base", "sql", 32},                  //
		{"base", "", 0},
		{"base:other", "", 0},
		{"base", "other", 0},
		{"adapter", "", 0},
		{"base:adapter", "other", 0},
		{"base", "old", 0},
	} {
		if got := w.x.Match(prompt(c.model, c.adapter), []string{"a"}, nil)[0]; got != c.want {
			t.Errorf("model %q, adapter %q: %d, want %d", c.model, c.adapter, got, c.want)
		}
	}
	e = stored16([]int{3, 4}, nil, ids(1000, 1032))
	e[11] = 7
	w.say(e)
	w.cached(32, prompt("base", "old"))
	// A name with a colon that an engine's events have is that name.
	e = stored16([]int{5, 6}, nil, ids(2000, 2032))
	e[15] = "x:adapter"
	w.say(e)
	p := text(ids(2000, 2032), 1)
	p.Adapter = "x:adapter"
	w.cached(32, p)
	p = prompt("base", "x:adapter")
	w.cached(0, p)
}
