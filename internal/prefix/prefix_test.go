package prefix

import (
	"math/rand/v2"
	"testing"
)

func TestCommon(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		n := r.IntN(40)
		if r.IntN(4) == 0 {
			n = r.IntN(20_000)
		}
		a := make([]byte, n)
		for i := range a {
			a[i] = byte(r.IntN(2))
		}
		b := append([]byte(nil), a[:r.IntN(n+1)]...)
		for range r.IntN(5) {
			b = append(b, byte(r.IntN(2)))
		}
		want := 0
		for want < len(a) && want < len(b) && a[want] == b[want] {
			want++
		}
		if got := Common(string(a), string(b)); got != want {
			t.Fatalf("Common of %d and %d bytes = %d, want %d", len(a), len(b), got, want)
		}
	}
}
