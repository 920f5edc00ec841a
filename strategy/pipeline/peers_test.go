package pipeline_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/strategy/pipeline"
)

// directBus hands each frame over at once.
type directBus struct {
	share.Bus
	receive []func([]byte)
}

func (b *directBus) Publish(_ string, data []byte) error {
	for _, f := range b.receive {
		f(slices.Clone(data))
	}
	return nil
}

func (b *directBus) Subscribe(_ string, f func([]byte)) (func(), error) {
	b.receive = append(b.receive, f)
	return func() {}, nil
}

// A session stays with its target whichever gateway its requests come to: the first binding counts, a detour does not,
// and a move does.
func TestSharedSessions(t *testing.T) {
	var now atomic.Int64 // a Share's goroutines read it
	now.Store(1_700_000_000_000)
	clock := func() time.Time { return time.UnixMilli(now.Load()) }
	bus := &directBus{Bus: share.NewMemory()}
	var gateways []*pipeline.Strategy
	var shares []*share.Share
	for range 3 {
		s, err := share.New(share.Config{Bus: bus, Secret: "the secret of the fleet", Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(); err != nil {
			t.Fatal(err)
		}
		p, err := pipeline.New(pipeline.Config{Share: s, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		shares, gateways = append(shares, s), append(gateways, p)
	}
	tick := func() {
		for range 2 {
			now.Add(100)
			for _, s := range shares {
				s.Poll()
			}
		}
	}
	idle := []router.Target{{ID: "a", Load: router.Load{Known: true}}, {ID: "b", Load: router.Load{Known: true}}}
	busy := func(i int) []router.Target {
		ts := slices.Clone(idle)
		ts[i].Load.InFlight = 50
		return ts
	}
	p := router.Prompt{Model: "m", Session: "a session"}
	send := func(g int, ts []router.Target, stages ...router.Stage) string {
		d, err := gateways[g].Pick(context.Background(), p, ts)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range append([]router.Stage{router.Sent}, stages...) {
			gateways[g].Record(d, router.Outcome{Stage: s})
		}
		tick()
		return d.Target.ID
	}
	tick()
	home := send(0, idle, router.FirstToken, router.Finished)
	at := slices.IndexFunc(idle, func(t router.Target) bool { return t.ID == home })
	for range 20 {
		for g := range gateways {
			if id := send(g, idle); id != home {
				t.Fatalf("gateway %d sends it to %s, its home is %s", g, id, home)
			}
		}
	}
	if id := send(1, busy(at)); id == home {
		t.Fatal("no detour")
	}
	if id := send(2, idle); id != home {
		t.Fatal("a detour without a token moved it")
	}
	other := send(1, busy(at), router.FirstToken, router.Finished)
	for g := range gateways {
		if id := send(g, idle); id != other {
			t.Fatalf("gateway %d sends it to %s, it has moved to %s", g, id, other)
		}
	}
	gateways[0].Forget(other)
	now.Add((10 * time.Minute).Milliseconds())
	seen := map[string]bool{}
	for range 40 { // it is forgotten: each of these is a new one
		now.Add((10 * time.Minute).Milliseconds())
		seen[send(0, idle)] = true
	}
	if len(seen) != 2 {
		t.Error("after its time it is still bound")
	}
}
