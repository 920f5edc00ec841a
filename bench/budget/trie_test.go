package main

import (
	"testing"

	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/internal/workload"
)

// TestMatchIsExact compares every request of the standard workload chat, for
// each of 64 targets, with the exact oracle; of long, every tenth. The race
// detector makes this ten times as slow, so there it gets smaller workloads.
func TestMatchIsExact(t *testing.T) {
	conversations, documents := 2000, 40
	if racetest.Enabled {
		conversations, documents = 150, 4
	}
	for _, c := range []struct {
		w    *workload.Workload
		step int
	}{
		{workload.Chat(workload.ChatConfig{Conversations: conversations}), 1},
		{workload.Long(workload.LongConfig{Documents: documents}), 10},
	} {
		corpus, err := newCorpus(c.w, false)
		if err != nil {
			t.Fatal(err)
		}
		ids, at := corpus.place(64)
		tr, err := fill(corpus, ids, at)
		if err != nil {
			t.Fatal(err)
		}
		bad, checked := wrong(corpus, tr, ids, at, c.step)
		if want := 4 * len(ids) * ((len(c.w.Requests) + c.step - 1) / c.step); checked != want {
			t.Errorf("%s: %d answers checked, want %d", c.w.Name, checked, want)
		}
		if bad > 0 {
			t.Errorf("%s: %d of %d answers differ from the oracle's", c.w.Name, bad, checked)
		}
	}
}

// TestWrongSeesIt: a trie that was not sent everything is found out.
func TestWrongSeesIt(t *testing.T) {
	c, err := newCorpus(workload.Chat(workload.ChatConfig{Conversations: 50}), true)
	if err != nil {
		t.Fatal(err)
	}
	ids, at := c.place(4)
	tr, err := fill(c, ids, at)
	if err != nil {
		t.Fatal(err)
	}
	r := c.Last(0)
	tr.Remove(scope, c.text(r), ids[at[0]])
	if bad, _ := wrong(c, tr, ids, at, 1); bad == 0 {
		t.Error("no difference from the oracle seen")
	}
}

// TestTexts holds the two layouts of a corpus to the same texts, and the copies
// to compare with to the same bytes.
func TestTexts(t *testing.T) {
	w := workload.Chat(workload.ChatConfig{Conversations: 60})
	whole, err := newCorpus(w, true)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := newCorpus(w, false)
	if err != nil {
		t.Fatal(err)
	}
	twins := whole.twins(len(w.Requests))
	for i, r := range w.Requests {
		if whole.text(r) != parts.text(r) {
			t.Fatalf("%v: two texts", r)
		}
		if !compare(whole.text(r), twins[i]) {
			t.Fatalf("%v: not the same bytes", r)
		}
		if compare(whole.text(r)[1:], twins[i]) {
			t.Fatalf("%v: compare says equal of what is not", r)
		}
	}
}
