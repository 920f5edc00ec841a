package warmroute

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/warmroute/router"
)

func upstream(id string) *reverseproxy.Upstream {
	return &reverseproxy.Upstream{Host: new(reverseproxy.Host), Dial: id}
}

// TestFleetCounts holds the fleet to a plain recount over random pools and endings,
// each of which may be reported more than once.
func TestFleetCounts(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := &fleet{}
		var us reverseproxy.UpstreamPool
		for i := range 6 {
			us = append(us, upstream(fmt.Sprint("u", i)))
		}
		type sent struct {
			router.Flight
			id      string
			prefill int
			first   bool
			done    bool
		}
		var all []*sent
		for range 500 {
			if rng.IntN(3) > 0 && len(all) > 0 {
				s := all[rng.IntN(len(all))]
				if rng.IntN(2) == 0 {
					s.FirstToken()
					s.first = true
				} else {
					s.Done(router.Outcome{Stage: router.Finished})
					s.first, s.done = true, true
				}
				continue
			}
			pool := make(reverseproxy.UpstreamPool, 0, 4)
			for range 1 + rng.IntN(4) {
				pool = append(pool, us[rng.IntN(len(us))])
			}
			x := &exchange{policy: &Policy{}, pool: pool}
			length, unit := rng.IntN(1000), router.Unit(rng.IntN(2))
			d, fl, err := f.Choose(context.WithValue(context.Background(), exchangeKey{}, x),
				func(ts []router.Target) (router.Decision, error) {
					seen := map[string]bool{}
					for _, got := range ts {
						if seen[got.ID] {
							t.Fatalf("%s is offered twice", got.ID)
						}
						seen[got.ID] = true
						want := router.Load{Known: true}
						for _, s := range all {
							if s.id == got.ID && !s.done {
								want.InFlight++
							}
							if s.id == got.ID && !s.first {
								want.Prefill += s.prefill
							}
						}
						if got.Load != want || got.Ref.(*reverseproxy.Upstream).Dial != got.ID {
							t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
						}
					}
					for _, u := range pool {
						if !seen[u.Dial] {
							t.Fatalf("%s is not offered", u.Dial)
						}
					}
					return router.Decision{Target: ts[rng.IntN(len(ts))], Length: length, Cached: length / 3, Unit: unit}, nil
				})
			if err != nil {
				t.Fatal(err)
			}
			s := &sent{Flight: fl, id: d.Target.ID, prefill: length - length/3}
			if unit == router.Bytes {
				s.prefill /= 4
			}
			all = append(all, s)
		}
		for _, s := range all {
			s.Done(router.Outcome{})
		}
		for id, c := range f.known {
			if c.inFlight != 0 || c.prefill != 0 {
				t.Errorf("seed %d: %s is left with %+v", seed, id, c)
			}
		}
	}
}

// TestFleetForgets: a source that names ever new upstreams fills no memory, and
// nothing in flight is forgotten.
func TestFleetForgets(t *testing.T) {
	f := &fleet{}
	choose := func(id string) router.Flight {
		x := &exchange{policy: &Policy{}, pool: reverseproxy.UpstreamPool{upstream(id)}}
		_, fl, err := f.Choose(context.WithValue(context.Background(), exchangeKey{}, x),
			func(ts []router.Target) (router.Decision, error) {
				return router.Decision{Target: ts[0]}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return fl
	}
	held := choose("held")
	for i := range 10 * idle {
		choose(fmt.Sprint("u", i)).Done(router.Outcome{})
	}
	if len(f.known) > idle+2 {
		t.Errorf("%d are known", len(f.known))
	}
	if n := f.inFlight()["held"]; n != 1 {
		t.Errorf("%d in flight", n)
	}
	held.Done(router.Outcome{})
	if n := f.inFlight()["held"]; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// TestFleetRefuses: a choice that fails, panics or was not offered counts nothing.
func TestFleetRefuses(t *testing.T) {
	f := &fleet{}
	x := &exchange{policy: &Policy{}, pool: reverseproxy.UpstreamPool{upstream("a")}}
	ctx := context.WithValue(context.Background(), exchangeKey{}, x)
	if _, _, err := f.Choose(context.Background(), nil); !errors.Is(err, router.ErrNoTarget) {
		t.Errorf("without an exchange: %v", err)
	}
	mine := errors.New("mine")
	if _, _, err := f.Choose(ctx, func([]router.Target) (router.Decision, error) {
		return router.Decision{},
			mine
	}); err != mine {
		t.Errorf("%v", err)
	}
	if _, _, err := f.Choose(ctx, func([]router.Target) (router.Decision, error) {
		return router.Decision{Target: router.Target{ID: "b"}}, nil
	}); err == nil {
		t.Error("one that was not offered is taken")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		f.Choose(ctx, func([]router.Target) (router.Decision, error) { panic("in pick") })
	}()
	if n := f.inFlight()["a"]; n != 0 {
		t.Errorf("%d in flight", n)
	}
}
