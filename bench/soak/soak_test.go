package main

import (
	"os"
	"testing"
	"time"
)

// TestSoak is the short form: two minutes, or as long as WARMROUTE_SOAK says (0: not
// at all), at a rate that leaves the machine to other tests.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	t.Parallel()
	length := 2 * time.Minute
	if v := os.Getenv("WARMROUTE_SOAK"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal("WARMROUTE_SOAK:", err)
		}
		if length = d; d == 0 {
			t.Skip("WARMROUTE_SOAK=0")
		}
	}
	s := soak{
		out: t.Output(), length: length, users: 8, think: 150 * time.Millisecond, replicas: 6, row: 10 * time.Second, seed: 1,
		verbose: true, hostile: true,
	}
	good, err := s.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !good {
		t.Error("the gateway does not stay as it was; see above")
	}
}
