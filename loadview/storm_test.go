package loadview

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// TestStorm lets everything happen at once: what is in flight at the end of it
// is what the counters say, on members that left too, and nothing is ever below
// zero on the way.
func TestStorm(t *testing.T) {
	var clock atomic.Int64
	known := map[*member]bool{} // every member that ever was; guarded by View.mu through the pick
	var told sync.Map
	v, err := New(Config{
		CoolBase: 10 * time.Millisecond, CoolMax: 80 * time.Millisecond, Breaker: true, BreakerOpen: 5 * time.Millisecond,
		Now: func() time.Time { return time.Unix(0, clock.Add(int64(20*time.Microsecond))) },
		Trace: Trace{
			Joined:       func(m Member) { told.Store(m.ID, true) },
			Left:         func(id string, _ int) { told.Delete(id) },
			StateChanged: func(id string, from, to router.State) { told.Store(id, from != to) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []Member
	for i := range 12 {
		all = append(all, Member{ID: fmt.Sprint(i)})
	}
	if err := v.Set(all); err != nil {
		t.Fatal(err)
	}

	const workers, each = 16, 400
	var wg sync.WaitGroup
	var kept sync.Map // flights that outlive the storm
	var sent atomic.Int64
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range each {
				d, f, err := v.Choose(t.Context(), func(ts []router.Target) (router.Decision, error) {
					for _, m := range v.members {
						known[m] = true
					}
					if len(ts) == 0 {
						return router.Decision{}, &router.NoTargetError{}
					}
					t := ts[rng.IntN(len(ts))]
					for i := range ts {
						ts[i] = router.Target{} // what pick must not do
					}
					return router.Decision{Target: t, Length: rng.IntN(1 << 16)}, nil
				})
				if err != nil {
					continue
				}
				sent.Add(1)
				if d.Target.Load.InFlight < 0 || d.Target.Load.Prefill < 0 {
					t.Errorf("offered %+v", d.Target.Load)
				}
				o := outcomes[rng.IntN(len(outcomes))]
				switch rng.IntN(4) {
				case 0:
					kept.Store(f, w*each+i)
				case 1:
					f.FirstToken()
					fallthrough
				default: // both at once
					var two sync.WaitGroup
					two.Go(func() { f.Done(o) })
					two.Go(func() { f.FirstToken(); f.Done(ok) })
					two.Wait()
				}
			}
		})
	}
	stop := make(chan struct{})
	var aside sync.WaitGroup
	aside.Go(func() { // members come and go, and are drained
		rng := rand.New(rand.NewPCG(1, 3))
		for {
			select {
			case <-stop:
				return
			default:
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			if err := v.Set(all[:1+rng.IntN(len(all))]); err != nil {
				t.Error(err)
			}
			id := fmt.Sprint(rng.IntN(len(all)))
			_ = v.SetDraining(id, rng.IntN(2) == 0) // it may just have left
			_ = v.SetQueued(id, rng.IntN(9)-1)
		}
	})
	aside.Go(func() { // somebody looks
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, s := range v.Snapshot() {
				if l := s.Target.Load; l.InFlight < 0 || l.Prefill < 0 || l.InFlight > workers*each || s.ReadyIn < 0 {
					t.Errorf("seen %+v", s)
				}
			}
		}
	})
	wg.Wait()
	close(stop)
	aside.Wait()

	inFlight := map[*member]int64{}
	kept.Range(func(f, _ any) bool {
		inFlight[f.(*flight).member]++
		return true
	})
	for m := range known {
		if got := m.inFlight.Load(); got != inFlight[m] {
			t.Errorf("member %s counts %d, %d are in flight", m.id, got, inFlight[m])
		}
	}
	kept.Range(func(f, _ any) bool {
		f.(*flight).Done(ok)
		return true
	})
	for m := range known {
		if n, p := m.inFlight.Load(), m.prefill.Load(); n != 0 || p != 0 {
			t.Errorf("member %s ends with %d in flight, %d to prefill", m.id, n, p)
		}
	}
	if len(known) < 20 || sent.Load() != workers*each {
		t.Errorf("%d members and %d requests are no storm", len(known), sent.Load())
	}
}
