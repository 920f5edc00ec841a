package vllmtest

import (
	"testing"
	"time"
)

// TestStepClock: the engine's clock advances by the time of its steps, however long the machine takes for one.
func TestStepClock(t *testing.T) {
	var c stepClock
	start := time.Now()
	if c.now(start) != 0 {
		t.Error("it does not begin at 0")
	}
	c.begin(start, 100, 0.1) // 100 ns of the engine's, 10 of the machine's
	for after, want := range map[time.Duration]float64{-1: 0, 0: 0, 5: 50, 10: 100, time.Hour: 100} {
		if got := c.now(start.Add(after)); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	c.end()
	if c.now(start.Add(time.Hour)) != 100 {
		t.Error("it goes on between the steps")
	}
}
