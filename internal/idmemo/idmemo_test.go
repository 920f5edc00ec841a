package idmemo

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestMemo(t *testing.T) {
	var m Memo[int]
	ids := []string{"a", "b"}
	if m.Get(0, ids) != nil || m.Get(0, nil) != nil {
		t.Fatal("the zero Memo knows something")
	}
	if got := m.Put(1, ids, 7); *got != 7 {
		t.Fatalf("Put returned %d", *got)
	}
	if got := m.Get(1, ids); got == nil || *got != 7 {
		t.Errorf("the same list: %v", got)
	}
	if got := m.Get(1, []string{strings.Clone("a"), strings.Clone("b")}); got == nil || *got != 7 {
		t.Errorf("equal strings at other addresses: %v", got)
	}
	for name, other := range map[string][]string{
		"order": {"b", "a"}, "shorter": {"a"}, "longer": {"a", "b", "c"}, "empty": {}, "other bytes": {"a", "c"},
		"other cut": {"ab", ""},
	} {
		if m.Get(1, other) != nil {
			t.Errorf("%s: taken for the list that was put", name)
		}
	}
	if m.Get(2, ids) != nil {
		t.Error("a value of another generation was returned")
	}
	m.Put(1, nil, 9)
	if got := m.Get(1, []string{}); got == nil || *got != 9 {
		t.Errorf("the empty list: %v", got)
	}
	ids[0] = "z" // the caller's slice is its own again
	if m.Get(1, ids) != nil || m.Get(1, []string{"a", "b"}) == nil {
		t.Error("the Memo shares the caller's slice")
	}
}

// TestOldestGoes: the lists that were put last are kept.
func TestOldestGoes(t *testing.T) {
	var m Memo[int]
	lists := make([][]string, 3*size)
	for i := range lists {
		lists[i] = []string{fmt.Sprint(i)}
		m.Put(1, lists[i], i)
	}
	for i, ids := range lists {
		got := m.Get(1, ids)
		if kept := i >= len(lists)-size; kept != (got != nil) || kept && *got != i {
			t.Errorf("list %d: %v", i, got)
		}
	}
}

// TestReusedMemory: a string that stands where another stood is no other's, as
// the Memo keeps those that it knows.
func TestReusedMemory(t *testing.T) {
	var m Memo[string]
	for i := range 2000 {
		id := fmt.Sprintf("http://10.0.0.%04d:8000", i) // all of one size class
		ids := []string{id}
		if got := m.Get(1, ids); got != nil && *got != id {
			t.Fatalf("%q was taken for %q", id, *got)
		}
		m.Put(1, ids, id)
		if i%100 == 0 {
			runtime.GC()
		}
	}
}

// TestConcurrent: whatever is read is what was put for that list, under the race
// detector too.
func TestConcurrent(t *testing.T) {
	var m Memo[[]string]
	lists := make([][]string, 20)
	for i := range lists {
		for j := range i + 1 {
			lists[i] = append(lists[i], fmt.Sprint(j))
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 20_000 {
				ids, generation := lists[r.IntN(len(lists))], r.Uint64N(3)
				if got := m.Get(generation, ids); got == nil {
					m.Put(generation, ids, ids)
				} else if !slices.Equal(*got, ids) {
					t.Errorf("%v for %v", *got, ids)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestGetAllocatesNothing(t *testing.T) {
	var m Memo[int]
	ids := []string{"a", "b", "c"}
	clone := []string{strings.Clone("a"), strings.Clone("b"), strings.Clone("c")}
	m.Put(1, ids, 1)
	if n := testing.AllocsPerRun(100, func() { m.Get(1, ids); m.Get(1, clone); m.Get(2, ids) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{4, 64} {
		b.Run(fmt.Sprintf("ids=%d", n), func(b *testing.B) {
			var m Memo[int]
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("http://10.0.0.%d:8000", i)
			}
			m.Put(1, ids, 1)
			for b.Loop() {
				m.Get(1, ids)
			}
		})
	}
}
