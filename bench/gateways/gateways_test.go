package main

import (
	"os"
	"testing"
	"time"
)

// TestMain lets the test's program be a node.
func TestMain(m *testing.M) {
	if os.Getenv(nodeEnv) != "" {
		if err := serveNode(os.Stdin, os.Stdout); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestQuantile(t *testing.T) {
	vs := []uint32{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(vs, q); got != want*time.Microsecond {
			t.Errorf("quantile %v is %v, want %vus", q, got, int(want))
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("the quantile of none is not 0")
	}
}

func TestSamples(t *testing.T) {
	var s samples
	for i := range 3 * maxSamples {
		s.add(int64(i))
	}
	s.add(-5)
	if n := len(s.all()); n != maxSamples {
		t.Fatalf("%d are kept", n)
	}
	if m := quantile(s.all(), 0.5).Microseconds(); m < maxSamples || m > 2*maxSamples {
		t.Errorf("the middle of 0 to %d is %d by those that are kept", 3*maxSamples, m)
	}
}
