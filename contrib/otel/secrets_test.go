package otel_test

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
	"github.com/warmroute/router/contrib/otel"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
)

// secrets makes strings and numbers that occur nowhere else, and remembers them.
type secrets struct{ all []string }

func (s *secrets) text() string {
	t := fmt.Sprintf("secret%016x", rand.Uint64())
	s.all = append(s.all, t)
	return t
}

func (s *secrets) prompt() router.Prompt {
	p := router.Prompt{Model: s.text(), Adapter: s.text(), Salt: s.text(), Session: s.text(),
		Text: s.text() + strings.Repeat(" word", 100) + s.text()}
	for range 40 {
		n := 4_000_000_000 + rand.Uint32N(200_000_000)
		s.all = append(s.all, fmt.Sprint(n))
		p.Tokens = append(p.Tokens, n)
	}
	return p
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
	return d, err
}

// Whatever a prompt and a reply hold, nothing of it comes to metrics and spans.
func TestNoSecretIsExported(t *testing.T) {
	var s secrets
	r := newRig(t, otel.Config{})
	view := must(loadview.New(loadview.Config{CoolAfter: -1, Trace: r.Fleet("f", loadview.Trace{})}))
	ids := []string{"http://user:" + s.text() + "@vllm-1:8000/v1?key=" + s.text(), "vllm-2"}
	if err := errors.Join(view.Set([]loadview.Member{{ID: ids[0]}, {ID: ids[1]}}), r.WatchFleet("f", view)); err != nil {
		t.Fatal(err)
	}
	stream := r.Stream("f", ids, func(string) string { return s.text() })
	defer stream.Close()
	stream.Transition(s.text())
	stream.Lag(ids[0], time.Second)
	aware := must(cacheaware.New(cacheaware.Config{}))
	var told strings.Builder
	for name, strategy := range map[string]router.Strategy{"aware": aware, "own": &blabber{Strategy: aware}} {
		rt := router.New(strategy, view, router.Options{Backoff: -1, Trace: r.Router(otel.Route{Name: name, Strategy: name,
			Fleet: "f", Provider: "vllm"}, router.Trace{})})
		for range 30 {
			events := span(t, func(ctx context.Context) {
				_ = rt.Do(ctx, s.prompt(), func(_ context.Context, l *router.Lease) (router.Outcome, error) {
					if l.Attempt() == 1 {
						return router.Outcome{Status: 500}, errors.New(s.text())
					}
					return router.Outcome{Reply: s.text(), Status: 200, PromptTokens: 100, CachedTokens: 32, OutputTokens: 3}, nil
				})
			})
			for _, e := range events {
				fmt.Fprintln(&told, e.Name, values(e.Attributes))
			}
		}
	}
	r.reaches(1, "warmroute.picks", "warmroute.route", "own", "warmroute.reason", "other")
	r.reaches(1, "warmroute.no_target", "warmroute.cause", "error")
	r.reaches(0, "warmroute.target.in_flight", "warmroute.target", "http://vllm-1:8000/v1")
	told.WriteString(r.dump())
	text := told.String()
	if strings.Count(text, otel.EventDecision) < 60 || len(s.all) < 1000 ||
		!strings.Contains(r.dump(), "http://vllm-1:8000/v1") {
		t.Fatalf("%d secrets in %s", len(s.all), text)
	}
	for _, secret := range s.all {
		if strings.Contains(text, secret) {
			t.Errorf("the secret %q is told", secret)
		}
	}
}
