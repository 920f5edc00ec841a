package oracle_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warmroute/router/bench/oracle"
)

func naive(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func TestCommon(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	long := strings.Repeat("the same words over and over, ", 60)
	for range 5000 {
		a := []byte(long[:r.IntN(len(long))])
		b := []byte(long[:r.IntN(len(long))])
		if len(a) > 0 && r.IntN(2) == 0 {
			a[r.IntN(len(a))] = 0
		}
		if got, want := oracle.Common(string(a), string(b)), naive(string(a), string(b)); got != want {
			t.Fatalf("Common(%q, %q) = %d, want %d", a, b, got, want)
		}
	}
}

// TestTexts compares with a loop over all texts, byte by byte, on texts of few
// letters, so that equal ones, prefixes and near misses are common.
func TestTexts(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		var set oracle.Texts
		var all []string
		different := make(map[string]bool)
		for range 60 {
			b := make([]byte, r.IntN(8))
			for i := range b {
				b[i] = "a\x00\xff"[r.IntN(3)]
			}
			text := string(b)
			want := 0
			for _, s := range all {
				want = max(want, naive(s, text))
			}
			if got := set.Longest(text); got != want {
				t.Fatalf("Longest(%q) among %q = %d, want %d", text, all, got, want)
			}
			if r.IntN(3) > 0 {
				set.Add(text)
				all = append(all, text)
				different[text] = true
			}
			if set.Len() != len(different) {
				t.Fatalf("%d texts, want %d", set.Len(), len(different))
			}
		}
	}
}
