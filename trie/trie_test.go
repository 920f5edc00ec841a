package trie

import (
	"math/rand/v2"
	"testing"
)

func mustNew(tb testing.TB, cfg Config) *Trie {
	tb.Helper()
	t, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		program := make([]byte, 200+r.IntN(600))
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		play(t, program)
	}
}
