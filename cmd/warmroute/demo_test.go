package main

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shortDemo is one of a few seconds.
func shortDemo() demo {
	d := standardDemo
	d.chat.Conversations, d.chat.Turns, d.users = 12, 6, 8
	d.speed, d.gateways = 50, 3
	return d
}

// TestDemo runs a short demo and reads its tables.
func TestDemo(t *testing.T) {
	leakCheck(t)
	d := shortDemo()
	var out bytes.Buffer
	if err := d.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	share := regexp.MustCompile(`cached prompt tokens +([0-9.]+)% +([0-9.]+)%`).FindStringSubmatch(out.String())
	if share == nil {
		t.Fatalf("no table:\n%s", out.String())
	}
	rr, _ := strconv.ParseFloat(share[1], 64)
	ca, _ := strconv.ParseFloat(share[2], 64)
	if ca <= rr || !strings.Contains(out.String(), "time to first token, mean") || strings.Contains(out.String(), "\r") ||
		strings.Contains(out.String(), "better by") {
		t.Errorf("output:\n%s", out.String())
	}
	for _, want := range []string{"least_work wins: ", "requests of replica-1 to replica-4", "while it is away",
		"A replica dies and returns", "3 gateways, without and with a shared view", "0 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestDemoEnds(t *testing.T) {
	leakCheck(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := standardDemo.run(ctx, new(bytes.Buffer)); err == nil {
		t.Error("an interrupted demo succeeded")
	}
}

func TestTally(t *testing.T) {
	tl := tally{targets: map[string]int{"replica-1": 1, "replica-2": 3}, prompt: 100, cached: 25, answered: 4}
	for i := range 100 {
		tl.ttft = append(tl.ttft, time.Duration(100-i)*time.Millisecond)
	}
	if tl.mean() != 50500*time.Microsecond || tl.quantile(0.5) != 51*time.Millisecond ||
		tl.quantile(0.99) != 100*time.Millisecond ||
		tl.quantile(1) != 100*time.Millisecond || byReplica(2, []*tally{&tl}).Values[0] != "1 3" || tl.cachedShare() != 0.25 {
		t.Errorf("%v %v %v %v", tl.mean(), tl.quantile(0.5), tl.quantile(0.99), tl.cachedShare())
	}
	if (&tally{}).mean() != 0 || (&tally{}).quantile(0.5) != 0 {
		t.Error("nothing is not 0")
	}
}

// TestLess: a factor below 1 is never printed, least of all as "better".
func TestLess(t *testing.T) {
	for _, c := range []struct {
		first, last float64
		want        string
	}{
		{10, 1, "10.0x better"}, {1, 10, "10.0x worse"}, {1, 1.04, "the same"}, {1.04, 1, "the same"}, {0, 3, "the same"},
		{10, 9, "1.1x better"}, {9, 10, "1.1x worse"},
	} {
		if got := less(c.first, c.last); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.first, c.last, got, c.want)
		}
	}
	lost := []*tally{{prompt: 100, cached: 90, answered: 1}, {prompt: 100, cached: 50, answered: 1}}
	if v := won("least_work")(lost); !strings.HasPrefix(v, "least_work did not win") {
		t.Error(v)
	}
}

// TestDemoStays: the result stays, on the page too, until the demo is stopped, which is no error.
func TestDemoStays(t *testing.T) {
	leakCheck(t)
	d := shortDemo()
	d.chat.Conversations, d.chat.Turns, d.stays = 4, 3, true
	var out lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.show(ctx, &out, "") }()
	said := regexp.MustCompile(`The result stays on the page, (\S+), until Ctrl-C`)
	eventually(t, "the end of the chapters", func() bool { return said.MatchString(out.String()) || len(ended) > 0 })
	m := said.FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("%v\n%s", <-ended, out.String())
	}
	for _, c := range readState(t, m[1], "").Story.Chapters {
		if c.Verdict == "" {
			t.Errorf("%+v", c)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNoFactorBeforeTheEnd: halves that are not both over are not compared.
func TestNoFactorBeforeTheEnd(t *testing.T) {
	a := &tally{targets: map[string]int{}, prompt: 100, cached: 10, answered: 1, over: true}
	b := &tally{targets: map[string]int{}, prompt: 10, cached: 9, answered: 1}
	for _, over := range []bool{false, true} {
		b.over = over
		if r := comparison([]*tally{a, b})[1]; (r.Better != "") != over {
			t.Errorf("over %v: %q", over, r.Better)
		}
	}
}
