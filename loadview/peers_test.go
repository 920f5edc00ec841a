package loadview_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/share"
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

// peers are gateways over the same two members, on a bus without lag.
type peers struct {
	t      *testing.T
	now    atomic.Int64 // ns; a Share's goroutines read it
	shares []*share.Share
	views  []*loadview.View
	forgot []int
}

func (p *peers) clock() time.Time { return time.Unix(0, p.now.Load()) }

func newPeers(t *testing.T, n int) *peers {
	p := &peers{t: t, forgot: make([]int, n)}
	p.now.Store(1_700_000_000e9)
	bus := &directBus{Bus: share.NewMemory()}
	for i := range n {
		s, err := share.New(share.Config{Bus: bus, Secret: "the secret of the fleet", Now: p.clock})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(); err != nil {
			t.Fatal(err)
		}
		v, err := loadview.New(loadview.Config{
			Share: s, Now: p.clock, Jitter: -1,
			Trace: loadview.Trace{Forget: func(string) { p.forgot[i]++ }},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Set([]loadview.Member{{ID: "a"}, {ID: "b"}}); err != nil {
			t.Fatal(err)
		}
		p.shares, p.views = append(p.shares, s), append(p.views, v)
	}
	p.tick()
	return p
}

// tick lets 10 ms pass, in which all publish.
func (p *peers) tick() {
	for range 2 {
		p.now.Add(int64(5 * time.Millisecond))
		for _, s := range p.shares {
			s.Poll()
		}
	}
}

func (p *peers) send(g int, id string, prompt router.Prompt) router.Flight {
	p.t.Helper()
	_, f, err := p.views[g].ChoosePrompt(context.Background(), prompt,
		func(ts []router.Target) (router.Decision, error) {
			i := slices.IndexFunc(ts, func(t router.Target) bool { return t.ID == id })
			return router.Decision{Prompt: prompt, Target: ts[i], Length: 400, Cached: 100, Unit: router.Tokens}, nil
		})
	if err != nil {
		p.t.Fatal(err)
	}
	p.tick()
	return f
}

// offered is a as gateway g offers it for a prompt.
func (p *peers) offered(g int, prompt router.Prompt) (a router.Target) {
	stop := errors.New("looked")
	_, _, err := p.views[g].ChoosePrompt(context.Background(), prompt,
		func(ts []router.Target) (router.Decision, error) {
			a = ts[0]
			return router.Decision{}, stop
		})
	if !errors.Is(err, stop) {
		p.t.Fatal(err)
	}
	return a
}

// The requests of other gateways count at once, and not twice with a report of the queue.
func TestPeersLoad(t *testing.T) {
	p := newPeers(t, 3)
	f := p.send(0, "a", router.Prompt{})
	g := p.send(1, "a", router.Prompt{})
	want := router.Load{Known: true, Queued: 2, Prefill: 600}
	if got := p.offered(2, router.Prompt{}).Load; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := p.views[2].Snapshot()[0].Target.Load; got != want {
		t.Errorf("snapshot: %+v, want %+v", got, want)
	}
	want = router.Load{Known: true, InFlight: 1, Queued: 1, Prefill: 600}
	if got := p.offered(0, router.Prompt{}).Load; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// The engine has five: these two, and three that no gateway sent.
	if err := p.views[2].SetQueued("a", 5); err != nil {
		t.Fatal(err)
	}
	if got := p.offered(2, router.Prompt{}).Load.Queued; got != 5 {
		t.Errorf("after a report of 5: %d", got)
	}
	f.FirstToken()
	f.Done(router.Outcome{Stage: router.Finished, Status: 200})
	p.tick()
	if got := p.offered(2, router.Prompt{}).Load; got.Queued != 4 || got.Prefill != 300 {
		t.Errorf("after the first end: %+v", got)
	}
	g.Done(router.Outcome{Stage: router.Finished, Status: 200})
	p.tick()
	if got := p.offered(2, router.Prompt{}).Load; got.Queued != 3 || got.Prefill != 0 {
		t.Errorf("after both ends: %+v", got)
	}
	if got := p.offered(2, router.Prompt{}).Load.InFlight; got != 0 {
		t.Errorf("%d in flight of its own", got)
	}
}

// A Retry-After holds for all gateways, and for whom it was given.
func TestPeersRetryAfter(t *testing.T) {
	p := newPeers(t, 2)
	one, other := router.Prompt{Model: "m", Account: "one"}, router.Prompt{Model: "m", Account: "other"}
	p.send(0, "a", one).Done(router.Outcome{Stage: router.Failed, Status: 429, RetryAfter: 20 * time.Second})
	p.tick()
	for g := range 2 {
		if s := p.offered(g, one).State; s != router.Full {
			t.Errorf("gateway %d: %v for its account", g, s)
		}
		if s := p.offered(g, other).State; s != router.Ready {
			t.Errorf("gateway %d: %v for another account", g, s)
		}
	}
	p.now.Add(int64(21 * time.Second))
	if s := p.offered(1, one).State; s != router.Ready {
		t.Errorf("%v after it", s)
	}
}

// A cool-down is one gateway's conclusion: it cools nothing elsewhere, but then one failure there is enough.
func TestPeersHint(t *testing.T) {
	p := newPeers(t, 2)
	fails := func(g int) {
		p.send(g, "a", router.Prompt{}).Done(router.Outcome{Stage: router.Failed, Err: errors.New("connection reset")})
		p.tick()
	}
	for range 3 {
		fails(0)
	}
	if s := p.offered(0, router.Prompt{}).State; s != router.Cooling {
		t.Fatalf("%v after three failures", s)
	}
	for range 100 {
		p.tick()
		if s := p.offered(1, router.Prompt{}).State; s != router.Ready {
			t.Fatalf("%v by the word of another", s)
		}
	}
	fails(1)
	if s := p.offered(1, router.Prompt{}).State; s != router.Cooling {
		t.Errorf("%v after a failure of its own", s)
	}
	p = newPeers(t, 2)
	fails(1)
	if s := p.offered(1, router.Prompt{}).State; s != router.Ready {
		t.Errorf("%v after one failure without a hint", s)
	}
}

// A lost cache is forgotten once by each, however many say so.
func TestPeersForget(t *testing.T) {
	p := newPeers(t, 3)
	p.views[0].Forget("a")
	p.tick()
	if !slices.Equal(p.forgot, []int{1, 1, 1}) {
		t.Fatalf("%v", p.forgot)
	}
	p.views[1].Forget("a") // its own event stream is later
	p.tick()
	if !slices.Equal(p.forgot, []int{1, 2, 1}) {
		t.Errorf("%v", p.forgot)
	}
	p.now.Add(int64(time.Minute))
	p.views[1].Forget("a")
	p.tick()
	if !slices.Equal(p.forgot, []int{2, 3, 2}) {
		t.Errorf("%v", p.forgot)
	}
	if err := p.views[2].Set([]loadview.Member{{ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	p.tick()
	if !slices.Equal(p.forgot, []int{2, 3, 3}) {
		t.Errorf("after a member left one gateway: %v", p.forgot)
	}
}
