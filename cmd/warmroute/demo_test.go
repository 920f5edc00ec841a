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

// TestDemo runs a short demo and reads its table.
func TestDemo(t *testing.T) {
	leakCheck(t)
	d := standardDemo
	d.chat.Conversations, d.chat.Turns, d.users = 12, 6, 8
	d.speed = 50
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
	if ca <= rr || !strings.Contains(out.String(), "time to first token, mean") || strings.Contains(out.String(), "\r") {
		t.Errorf("output:\n%s", out.String())
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
	tl := tally{targets: map[string]int{"a": 1, "b": 3}, prompt: 100, cached: 25}
	for i := range 100 {
		tl.ttft = append(tl.ttft, time.Duration(100-i)*time.Millisecond)
	}
	if tl.mean() != 50500*time.Microsecond || tl.quantile(0.5) != 51*time.Millisecond ||
		tl.quantile(0.99) != 100*time.Millisecond ||
		tl.quantile(1) != 100*time.Millisecond || tl.perTarget() != "3 1" || tl.cachedShare() != 0.25 {
		t.Errorf("%v %v %v %q %v", tl.mean(), tl.quantile(0.5), tl.quantile(0.99), tl.perTarget(), tl.cachedShare())
	}
	if (&tally{}).mean() != 0 || (&tally{}).quantile(0.5) != 0 {
		t.Error("nothing is not 0")
	}
}
