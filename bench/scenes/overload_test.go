package main

import (
	"testing"
	"time"

	"github.com/warmroute/router/internal/racetest"
)

// TestOverloadBudget holds Warmroute to nine tenths of its goodput at 0.9 times what fits, to a recovery within a
// second, and to no failure of other models and keys.
func TestOverloadBudget(t *testing.T) {
	if testing.Short() || racetest.Enabled {
		t.Skip("one goroutine, long; make norace runs it")
	}
	for _, engines := range []int{2, 8} {
		for _, kind := range fleets() {
			for _, over := range loads {
				o := overload{kind: kind, policy: "warmroute", over: over, seed: 9, engines: engines,
					before: 4 * time.Second, during: 6 * time.Second, after: 4 * time.Second}
				r, err := o.run()
				if err != nil {
					t.Fatal(err)
				}
				k, _ := kindOf(kind, 0)
				if r.goodput < 0.9 || r.recovery < 0 || r.recovery > 1 || r.others > 0 && !k.shared {
					t.Errorf("%d engines, %s, %g times what fits: %+v", engines, kind, over, r)
				}
			}
		}
	}
}

// TestOverloadLine holds other models and keys unharmed if they share the places of the engines and a line knows how
// many these are.
func TestOverloadLine(t *testing.T) {
	if testing.Short() || racetest.Enabled {
		t.Skip("one goroutine, long; make norace runs it")
	}
	for _, over := range loads {
		o := overload{kind: "503, places for all", policy: lineKnown, over: over, seed: 9, engines: 8,
			before: 4 * time.Second, during: 6 * time.Second, after: 4 * time.Second}
		r, err := o.run()
		if err != nil {
			t.Fatal(err)
		}
		if r.goodput < 0.9 || r.recovery < 0 || r.recovery > 1 || r.others > 0 || r.slower > 1.5 {
			t.Errorf("%g times what fits: %+v", over, r)
		}
	}
}

// TestOverloadTellsApart sees to it that a rule under which the whole fleet goes out does not pass.
func TestOverloadTellsApart(t *testing.T) {
	o := overload{kind: "503", policy: "smg_breakers", over: 1.5, seed: 9, engines: 8,
		before: 4 * time.Second, during: 6 * time.Second, after: 4 * time.Second}
	r, err := o.run()
	if err != nil {
		t.Fatal(err)
	}
	if r.goodput > 0.5 || r.recovery >= 0 {
		t.Errorf("%+v: the scene shows nothing", r)
	}
}
