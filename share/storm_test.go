package share_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/share"
)

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Gateways send at the same time, from many goroutines. In the end none counts a request that is over, and each knows
// of every prompt.
func TestStorm(t *testing.T) {
	bus := share.NewMemory()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	gateways := make([]*gateway, 4)
	for i := range gateways {
		g, err := newGateway(bus, fmt.Sprint("gateway-", i))
		if err != nil {
			t.Fatal(err)
		}
		gateways[i] = g
		running.Go(func() {
			if err := g.share.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for _, g := range gateways {
		eventually(t, "all hear each other", func() bool { return len(g.share.State().Peers) == 3 })
	}
	var wg sync.WaitGroup
	for n, g := range gateways {
		for k := range 3 {
			wg.Go(func() {
				for i := range 60 {
					text := strings.Repeat(fmt.Sprintf("conversation %d of %d of %d. ", i%7, k, n), 50*(1+i%5))
					err := g.router.Do(ctx, router.Prompt{Model: "m", Text: text},
						func(_ context.Context, l *router.Lease) (router.Outcome, error) {
							if i%3 == 0 {
								l.FirstToken()
							}
							o := router.Outcome{Status: 200, PromptTokens: 500, CachedReported: true, Reply: "a reply"}
							if i%11 == 0 {
								o = router.Outcome{Status: 400}
							}
							return o, nil
						})
					if (err != nil) != (i%11 == 0) {
						t.Error(err)
					}
					if _, err := g.router.Explain(ctx, router.Prompt{Model: "m", Text: text}); err != nil {
						t.Error(err)
					}
					g.share.State()
				}
			})
		}
	}
	wg.Wait()
	for n, g := range gateways {
		eventually(t, "nothing is in flight", func() bool {
			for _, m := range g.view.Snapshot() {
				if m.Target.Load.InFlight+m.Target.Load.Queued+m.Target.Load.Prefill != 0 {
					return false
				}
			}
			return true
		})
		text := strings.Repeat(fmt.Sprintf("conversation %d of %d of %d. ", 4, 2, (n+1)%4), 250)
		eventually(t, "a peer's prompt is known", func() bool {
			all, err := g.router.Explain(ctx, router.Prompt{Model: "m", Text: text})
			for _, c := range all {
				if c.Cached >= len(text)-1024 {
					return true
				}
			}
			return err != nil
		})
		if s := g.share.State(); s.Bad != 0 || !s.Bus.Connected {
			t.Errorf("%+v", s)
		}
	}
}

// Without Run, and on a bus that drops everything, a gateway routes as it would alone.
func TestDeadBus(t *testing.T) {
	g, err := newGateway(deadBus{share.NewMemory()}, "alone")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- g.share.Run(ctx) }()
	p := router.Prompt{Model: "m", Text: strings.Repeat("a conversation. ", 1000)}
	var first string
	for i := range 20 {
		l, err := g.router.Route(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = l.Decision().Target.ID
		} else if d := l.Decision(); d.Target.ID != first || d.Cached != d.Length {
			t.Errorf("request %d went to %s, cached %d", i, d.Target.ID, d.Cached)
		}
		l.Done(router.Outcome{Stage: router.Finished, Status: 200})
	}
	eventually(t, "it says so", func() bool { return !g.share.State().LoadShared })
	if s := g.share.State(); s.Failed == 0 || s.Bus.Connected || s.Lag < 50*time.Millisecond {
		t.Errorf("%+v", s)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// deadBus is a bus that is not connected.
type deadBus struct{ *share.Memory }

func (deadBus) Publish(string, []byte) error { return share.ErrDropped }
func (deadBus) State() share.BusState        { return share.BusState{Err: share.ErrDropped} }
