package config_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
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

// Two gateways of one file share what each sends and has in flight, with every strategy that remembers prompts.
func TestPeers(t *testing.T) {
	for _, strategy := range []string{"least_work", "cache_aware", "pipeline"} {
		f, err := config.Parse([]byte(`
			[[providers]]
			name = "a"
			api_base = "http://127.0.0.1:1"
			[[providers]]
			name = "b"
			api_base = "http://127.0.0.1:2"
			[[routes]]
			model = "m"
			strategy = "`+strategy+`"
			targets = [{ provider = "a" }, { provider = "b" }]
		`), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var now atomic.Int64 // ns; a Share's goroutines read it
		clock := func() time.Time { return time.Unix(1_700_000_000, now.Load()) }
		bus := &directBus{Bus: share.NewMemory()}
		var shares []*share.Share
		var gateways []*config.Gateway
		for range 2 {
			s, err := share.New(share.Config{Bus: bus, Secret: "the secret of the fleet", Now: clock})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Open(); err != nil {
				t.Fatal(err)
			}
			h, err := s.Holders(router.HoldersConfig{})
			if err != nil {
				t.Fatal(err)
			}
			g, err := config.Build(f, config.Options{Peers: s, Holders: h})
			if err != nil {
				t.Fatal(err)
			}
			shares, gateways = append(shares, s), append(gateways, g)
		}
		tick := func() {
			for range 2 {
				now.Add(int64(5 * time.Millisecond))
				for _, s := range shares {
					s.Poll()
				}
			}
		}
		tick()
		r, ok := gateways[0].Route("m")
		other, _ := gateways[1].Route("m")
		if !ok {
			t.Fatal("no route")
		}
		ctx := context.Background()
		p := router.Prompt{Model: "m", Text: strings.Repeat("a conversation ", 500)}
		l, err := r.Router.Route(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		l.Made("resp_1")
		tick()
		all, err := other.Router.Explain(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			sent := c.Target.ID == l.Decision().Target.ID
			if (c.Cached > 0) != sent || (c.Target.Load.Queued == 1) != sent {
				t.Errorf("%s: %+v, sent there: %v", strategy, c, sent)
			}
		}
		if id, _ := gateways[1].Holders().Holder("resp_1"); id != l.Decision().Target.ID {
			t.Errorf("%s: the state is at %q", strategy, id)
		}
	}
}

// TestShareTable: a file's [share] makes the Peers once, and another one is refused while the gateway runs.
func TestShareTable(t *testing.T) {
	calls := 0
	o := config.Options{
		LookupEnv: func(string) (string, bool) { return "a secret of the fleet", true },
		Share: func(s *file.Share) (router.Peers, *router.Holders, error) {
			calls++
			c := s.Config()
			c.Bus, c.Secret = share.NewMemory(), "a secret of the fleet"
			n, err := share.New(c)
			if err != nil {
				return nil, nil, err
			}
			h, err := n.Holders(router.HoldersConfig{})
			return n, h, err
		},
	}
	parse := func(table string) *file.File {
		f, err := config.Parse([]byte(table+"[[providers]]\nname = \"a\"\napi_base = \"http://127.0.0.1:1\"\n"+
			"[[routes]]\nmodel = \"*\"\n[[routes.targets]]\nprovider = \"a\"\n"), o)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const table = "[share]\nbus = [\"nats://a:1\"]\nsecret_env = \"S\"\n"
	g, err := config.Build(parse(table), o)
	if err != nil || calls != 1 {
		t.Fatal(calls, err)
	}
	if err := g.Reload(parse("[queue]\nenabled = true\n" + table)); err != nil || g.Queue() == nil || calls != 1 {
		t.Errorf("another table: %d calls, %v", calls, err)
	}
	for _, other := range []string{"", table + "load = false\n"} {
		if err := g.Reload(parse(other)); err == nil || !strings.Contains(err.Error(), "share: it cannot change") {
			t.Errorf("%q: %v", other, err)
		}
	}
	if g.Queue() == nil {
		t.Error("a file that was refused is half in place")
	}
	o.Share = func(*file.Share) (router.Peers, *router.Holders, error) { return nil, nil, errors.New("no bus") }
	if _, err := config.Build(parse(table), o); err == nil || !strings.Contains(err.Error(), "share: no bus") {
		t.Errorf("a bus that cannot be made: %v", err)
	}
	if _, err := config.Build(parse(""), o); err != nil {
		t.Errorf("no [share]: %v", err)
	}
}
