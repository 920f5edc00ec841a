package rivals

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

func chosen(t *testing.T, s router.Strategy, p router.Prompt, ts []router.Target) router.Decision {
	t.Helper()
	d, err := s.Pick(context.Background(), p, ts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ringFleet(n int) []router.Target {
	ts := make([]router.Target, n)
	for i := range ts {
		ts[i] = at(fmt.Sprint("vllm-", i), 0)
	}
	return ts
}

// The bound is 1.25 x (all + 1) / 4.
func TestCHWBLBound(t *testing.T) {
	p := router.Prompt{Text: "a prompt"}
	for _, c := range []struct {
		own       int    // requests at the own place
		others    [3]int // and at the other three
		overflows bool
	}{
		{0, [3]int{0, 0, 0}, false},
		{1, [3]int{0, 0, 0}, false}, // 2 > 0.63, and so is 1: nobody is below it
		{2, [3]int{0, 0, 0}, false}, // 3 > 0.94, and so is 1
		{3, [3]int{0, 0, 0}, true},  // 4 > 1.25, 1 is not
		{1, [3]int{1, 1, 1}, false}, // 2 > 1.56, for all
		{3, [3]int{3, 3, 3}, false}, // 4 <= 4.06
		{4, [3]int{3, 3, 3}, true},  // 5 > 4.38, 4 is not
		{4, [3]int{4, 4, 4}, false}, // 5 <= 5.31
		{4, [3]int{3, 4, 4}, false}, // 5 <= 5
		{4, [3]int{3, 3, 4}, true},  // 5 > 4.69, 4 is not
	} {
		s, err := NewCHWBL(CHWBLConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ts := ringFleet(4)
		own := chosen(t, s, p, ts).Target.ID
		others := c.others[:]
		for i := range ts {
			if ts[i].ID == own {
				ts[i].Load.InFlight = c.own
			} else {
				ts[i].Load.InFlight, others = others[0], others[1:]
			}
		}
		d := chosen(t, s, p, ts)
		if got := d.Target.ID != own; got != c.overflows || got != (d.Reason == router.ReasonHashOverflow) {
			t.Errorf("%d at the own place, %v at the others: overflow %v (%s), want %v", c.own, c.others, got, d.Reason,
				c.overflows)
		}
	}
}

func TestCHWBLKey(t *testing.T) {
	s, err := NewCHWBL(CHWBLConfig{})
	if err != nil {
		t.Fatal(err)
	}
	chat := func(system, user, next string) router.Prompt {
		p, err := prompt.FromChat(fmt.Appendf(nil,
			`{"messages":[{"role":"system","content":%q},{"role":"user","content":%q},{"role":"assistant","content":%q}]}`,
			system, user, next))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	long := strings.Repeat("word ", 20) // 100 bytes
	for _, c := range []struct {
		name string
		a, b router.Prompt
		same bool
	}{
		{"the first user message, whatever the system prompt", chat("s", "hello", "x"), chat("another", "hello", "y"), true},
		{"not what follows it", chat("s", "hello", "x"), chat("s", "hello", ""), true},
		{"another message", chat("s", "hello", "x"), chat("s", "hallo", "x"), false},
		{"its first 100 bytes", chat("s", long+"1", "x"), chat("s", long+"2", "x"), true},
		{"the first 100 bytes of a plain text", router.Prompt{Text: long + "1"}, router.Prompt{Text: long + "2"}, true},
		{"within them", router.Prompt{Text: "1" + long}, router.Prompt{Text: "2" + long}, false},
		{"the scope", router.Prompt{Model: "a", Text: long}, router.Prompt{Model: "b", Text: long}, false},
	} {
		same := true
		for n := 50; n < 56; n++ {
			same = same && chosen(t, s, c.a, ringFleet(n)).Target.ID == chosen(t, s, c.b, ringFleet(n)).Target.ID
		}
		if same != c.same {
			t.Errorf("%s: same place %v, want %v", c.name, same, c.same)
		}
	}
}

func TestCHWBLLeavingMovesOnlyOwnKeys(t *testing.T) {
	s, err := NewCHWBL(CHWBLConfig{})
	if err != nil {
		t.Fatal(err)
	}
	all := ringFleet(6)
	fewer, counts := all[:5], make(map[string]int)
	for i := range 600 {
		p := router.Prompt{Text: fmt.Sprint(i)}
		with := chosen(t, s, p, all).Target.ID
		counts[with]++
		if without := chosen(t, s, p, fewer).Target.ID; with != all[5].ID && with != without {
			t.Fatalf("%s left, and a key of %s moved to %s", all[5].ID, with, without)
		}
	}
	for _, target := range all {
		if n := counts[target.ID]; n < 50 || n > 150 {
			t.Errorf("%s has %d of 600 keys", target.ID, n)
		}
	}
}
