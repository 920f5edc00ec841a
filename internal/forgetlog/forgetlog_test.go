package forgetlog

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestAgainstHistory compares with a list of all that was forgotten: nothing forgotten is missed, and as long as the
// log holds all IDs nothing is added.
func TestAgainstHistory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, ids := range []int{5, maxIDs, 2*maxIDs + 1} {
		var l Log
		last := make(map[string]uint64)
		var marks []uint64
		for n := range 4 * maxIDs {
			id := strconv.Itoa(r.IntN(ids))
			if n%8 == 0 {
				marks = append(marks, l.Mark())
			}
			l.Forget(id)
			last[id] = uint64(n + 1)
			mark, id := marks[r.IntN(len(marks))], strconv.Itoa(r.IntN(ids+1))
			got, want := l.Forgotten(id, mark), last[id] > mark
			if want && !got || got && !want && ids < maxIDs {
				t.Fatalf("%d IDs, step %d: Forgotten(%s, %d) = %v, want %v", ids, n, id, mark, got, want)
			}
		}
		if len(l.last) > maxIDs {
			t.Errorf("%d IDs are remembered", len(l.last))
		}
	}
}
