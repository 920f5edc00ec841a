package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// secrets makes strings and numbers that occur nowhere else, and remembers them.
type secrets struct{ all []string }

func (s *secrets) text() string {
	t := fmt.Sprintf("secret%016x", rand.Uint64())
	s.all = append(s.all, t)
	return t
}

func (s *secrets) token() uint32 {
	n := 4_000_000_000 + rand.Uint32N(200_000_000)
	s.all = append(s.all, fmt.Sprint(n), fmt.Sprintf("%x", n))
	return n
}

func (s *secrets) prompt() router.Prompt {
	p := router.Prompt{Model: s.text(), Adapter: s.text(), Salt: s.text(), Session: s.text(),
		Text: s.text() + strings.Repeat(" word", 100) + s.text()}
	for range 40 {
		p.Tokens = append(p.Tokens, s.token())
	}
	return p
}

func (s *secrets) search(t *testing.T, where, text string) {
	t.Helper()
	if len(s.all) < 100 {
		t.Fatalf("only %d secrets", len(s.all))
	}
	text = strings.ToLower(text)
	for _, secret := range s.all {
		if strings.Contains(text, secret) {
			t.Errorf("%s tells the secret %q", where, secret)
		}
	}
}

// blabber is a strategy that puts the prompt into its reasons and errors.
type blabber struct {
	router.Strategy
	n atomic.Int64
}

func (b *blabber) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	if b.n.Add(1)%3 == 0 {
		return router.Decision{}, errors.New(p.Text)
	}
	d, err := b.Strategy.Pick(ctx, p, ts)
	d.Reason = router.Reason("because: " + []string{p.Text, p.Session}[b.n.Load()%2])
	d.Memo = p
	return d, err
}

// Whatever a prompt and a reply hold, nothing of it comes to the page: not even
// where a strategy puts it into its reasons, an engine into its errors, or an
// operator a password into a URL.
func TestNoSecretIsExported(t *testing.T) {
	var s secrets
	c := must(prometheus.New(prometheus.Config{}))
	page := serve(t, c)
	view := must(loadview.New(loadview.Config{CoolAfter: -1, Trace: c.Fleet("f", loadview.Trace{})}))
	password := s.text()
	ids := []string{"http://user:" + password + "@vllm-1:8000/v1?key=" + s.text() + "#" + s.text(), "vllm-2"}
	if err := view.Set([]loadview.Member{{ID: ids[0]}, {ID: ids[1]}}); err != nil {
		t.Fatal(err)
	}
	index := must(kvindex.New(kvindex.Config{}))
	tokens := s.prompt().Tokens[:32]
	if err := index.Apply(ids[0], 1, kvindex.Batch{Events: []kvindex.Event{{
		Kind: kvindex.Stored, Group: -1, BlockSize: 16, Hashes: []uint64{uint64(s.token()),
			uint64(s.token())}, Tokens: tokens, Adapter: s.text(), Salt: s.text(),
	}}}); err != nil {
		t.Fatal(err)
	}
	aware := must(cacheaware.New(cacheaware.Config{}))
	precise := must(precisecacheaware.New(precisecacheaware.Config{Index: index,
		Fallback: precisecacheaware.FallbackText}))
	for _, err := range []error{c.WatchFleet("f", view), c.WatchIndex("kv", index), c.WatchTrie("chat", aware.Stats),
		c.WatchPrecise("precise", precise.Stats)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stream := c.Stream("f", ids, func(string) string { return s.text() })
	defer stream.Close()
	stream.Transition(s.text())
	stream.Malformed(ids[0])
	stream.Lag(ids[0], time.Second)

	for name, strategy := range map[string]router.Strategy{"aware": aware, "precise": precise,
		"own": &blabber{Strategy: aware}} {
		r := router.New(strategy, view, router.Options{Backoff: -1, Trace: c.Router(prometheus.Route{Name: name,
			Strategy: name, Fleet: "f"}, router.Trace{})})
		for range 30 {
			p := s.prompt()
			_ = r.Do(context.Background(), p, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
				o := router.Outcome{Reply: s.text(), Status: 200, PromptTokens: 100, CachedTokens: 32, OutputTokens: 3}
				if l.Attempt() == 1 {
					return router.Outcome{Status: 500}, errors.New(s.text())
				}
				return o, nil
			})
		}
	}
	page.reaches(1, "warmroute_picks_total", "route=own", "reason=other")
	page.reaches(1, "warmroute_no_target_total", "route=own", "cause=error")
	page.reaches(1, "warmroute_retries_total", "cause=5xx")
	page.reaches(1, "warmroute_target_picks_total", "target=http://vllm-1:8000/v1")
	page.reaches(1, "warmroute_event_streams", "state=other")
	s.search(t, "the page", page.text())
}
