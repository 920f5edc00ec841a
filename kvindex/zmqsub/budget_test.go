package zmqsub

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/warmroute/router/membudget"
)

// TestBudgetMemory: budgets of several subscribers keep within the memory that they share, and give back all of it.
func TestBudgetMemory(t *testing.T) {
	b, err := membudget.New(membudget.Config{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	a := b.Account(membudget.Events)
	limit := a.Limit()
	all := make([]*budget, 3)
	for i := range all {
		all[i] = &budget{memory: a}
		all[i].begin(50)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	used := make([]int, len(all))
	for range 5000 {
		i, n := rng.IntN(len(all)), rng.IntN(40)
		if rng.IntN(2) == 0 {
			if all[i].try(n) {
				used[i] += n
			}
		} else {
			n = min(n, used[i])
			all[i].give(n)
			used[i] -= n
		}
		sum := 0
		for j, u := range used {
			if sum += u; all[j].kept() != int64(u) {
				t.Fatalf("%d are kept, want %d", all[j].kept(), u)
			}
		}
		if a.Used() != int64(sum) || a.Used() > limit {
			t.Fatalf("%d bytes of memory for %d, at most %d", a.Used(), sum, limit)
		}
	}
	for _, x := range all {
		x.begin(0)
	}
	if a.Used() != 0 {
		t.Errorf("%d bytes are left", a.Used())
	}
	// One that waits gets the bytes that another gives back, and none that can never be.
	for _, x := range all {
		x.begin(1000)
	}
	if !all[0].try(int(limit)) {
		t.Fatal("nothing is kept, and nothing fits")
	}
	got := make(chan error)
	go func() { got <- all[1].take(t.Context(), 10) }()
	all[0].give(int(limit))
	if err := <-got; err != nil || a.Used() != 10 {
		t.Errorf("%v, %d used", err, a.Used())
	}
	if err := all[2].take(context.Background(), int(limit)+1); !errors.Is(err, membudget.ErrShed) {
		t.Error(err)
	}
}
