package disagg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/vllmtest"
)

// TestStorm: faults at each point of a request, on one prefill target and one decode target of two; no
// request that the others could serve is lost, and nothing is counted at the end.
func TestStorm(t *testing.T) {
	points := []struct {
		name, at string
		fault    vllmtest.Faults
	}{
		{"prefill refuses the connection", "p0", vllmtest.Faults{Refuse: true}},
		{"prefill fails", "p0", vllmtest.Faults{Status: 500}},
		{"prefill breaks off in its reply", "p0", vllmtest.Faults{CutAfter: 1}},
		{"prefill hangs", "p0", vllmtest.Faults{Hang: true}},
		{"decode refuses the connection", "d0", vllmtest.Faults{Refuse: true}},
		{"decode fails, with no blocks fetched", "d0", vllmtest.Faults{Status: 500}},
		{"decode is silent", "d0", vllmtest.Faults{Hang: true}},
	}
	for _, protocol := range []disagg.Protocol{disagg.NIXL, disagg.Stored, disagg.SGLang} {
		for _, x := range points {
			t.Run(string(protocol)+"/"+x.name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, protocol, 2, 2, disagg.Config{
					Strict: protocol == disagg.SGLang, MinUncached: 100,
					PrefillTimeout: 2 * time.Second, DecodeTimeout: 2 * time.Second,
				})
				if x.fault.Hang { // only the bounds end it, and a healthy target must not meet them
					x.fault.Next = 2
				}
				f.fault(x.at, x.fault)
				var wg sync.WaitGroup
				for i := range 12 {
					wg.Go(func() {
						a, err := f.ask(t.Context(), body(fmt.Sprint("s", i), 200))
						if err != nil || a.text == "" {
							t.Errorf("lost: %v, %+v", err, a)
						}
					})
				}
				wg.Wait()
				f.idle()
			})
		}
	}
}

// TestStormRestarts: replicas of both roles die at random, and clients leave. Nothing stays counted, and once
// it is calm everything is served.
func TestStormRestarts(t *testing.T) {
	for _, protocol := range []disagg.Protocol{disagg.NIXL, disagg.Stored, disagg.SGLang} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			var stranded atomic.Int64
			cfg := disagg.Config{
				Strict: protocol == disagg.SGLang, MinUncached: 100,
				PrefillTimeout: 2 * time.Second, DecodeTimeout: 2 * time.Second,
			}
			cfg.Trace.Stranded = func(context.Context, router.Decision) { stranded.Add(1) }
			f := newFleet(t, protocol, 2, 2, cfg)
			rnd := rand.New(rand.NewPCG(1, 2))
			var wg sync.WaitGroup
			for i := range 60 {
				if i%10 == 5 {
					name := []string{"p0", "p1", "d0", "d1"}[rnd.IntN(4)]
					if err := f.at[name].Restart(); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Microsecond, cancel)
				}
				wg.Go(func() {
					defer cancel()
					_, err := f.ask(ctx, body(fmt.Sprint("r", i), 300))
					if ctx.Err() != nil && !errors.Is(err, context.Canceled) && err != nil &&
						!strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset") {
						t.Logf("a client that left got %v", err)
					}
				})
			}
			wg.Wait()
			f.idle()
			for i := range 8 {
				if _, err := f.ask(t.Context(), body(fmt.Sprint("c", i), 300)); err != nil {
					t.Errorf("in the calm: %v", err)
				}
			}
			f.idle()
			if st := f.split.Stats(); int64(st.Stranded) != stranded.Load() {
				t.Errorf("%+v, but %d were reported", st, stranded.Load())
			}
			for _, n := range []string{"p0", "p1", "d0", "d1"} {
				if st := f.at[n].Stats(); st.Running+st.Waiting != 0 {
					t.Errorf("%s still runs %+v", n, st)
				}
			}
		})
	}
}
