package config

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmroute/router"
)

// Under a reload after the other, which add and remove targets, change the strategy
// and its settings and move names between routes, every request is answered.
func TestReloadUnderLoad(t *testing.T) {
	var served [6]atomic.Int64
	urls := make([]string, len(served))
	for i := range served {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served[i].Add(1)
			_, _ = io.Copy(w, r.Body)
		}))
		defer s.Close()
		urls[i] = s.URL
	}
	file := func(turn int) string {
		var b strings.Builder
		var targets []string
		for i, u := range urls {
			if (i+turn)%3 == 0 && i > 0 { // a third of them is away, not the first
				continue
			}
			fmt.Fprintf(&b, "[[providers]]\nname = \"r%d\"\napi_base = %q\n", i, u)
			targets = append(targets, fmt.Sprintf(`{ provider = "r%d", weight = %d }`, i, 1+turn%2))
		}
		strategy := []string{"cache_aware", "least_work", "pipeline", "round_robin"}[turn/2%4]
		fmt.Fprintf(&b, "[[routes]]\nmodel = \"m\"\naliases = [%q]\nstrategy = %q\ntargets = [%s]\n",
			fmt.Sprint("alias-", turn%2), strategy, strings.Join(targets, ", "))
		fmt.Fprintf(&b, "[routes.failover]\nattempts = %d\n", 2+turn%2)
		if turn%3 > 0 { // what it serves is left to the other pattern in between
			fmt.Fprintf(&b, "[[routes]]\nmodel = \"alias-*\"\nstrategy = \"least_load\"\ntargets = [%s]\n",
				targets[len(targets)-1])
		}
		fmt.Fprintf(&b, "[[routes]]\nmodel = \"*\"\nstrategy = \"least_load\"\ntargets = [%s]\n", targets[0])
		return b.String()
	}
	g := mustBuild(t, file(0), options())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- g.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	stop, passed := make(chan struct{}), make(chan struct{}, 1)
	var wg sync.WaitGroup
	var count atomic.Int64
	for c := range 8 {
		wg.Go(func() {
			text := fmt.Sprintf("conversation %d ", c)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				m, ok := g.Route([]string{"m", "alias-0", "alias-1", "other"}[n%4])
				if !ok {
					t.Errorf("no route for request %d", n)
					return
				}
				text += "and on "
				if len(text) > 4096 {
					text = text[:20]
				}
				err := m.Router.Do(ctx, m.Prompt(router.Prompt{Text: text, Session: fmt.Sprint(c)}),
					func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
						ref := l.Decision().Target.Ref.(*Target)
						req, err := http.NewRequestWithContext(ctx, http.MethodPost, ref.Base.String()+"/v1/completions",
							strings.NewReader(m.Rewrite(l.Decision().Target)))
						if err != nil {
							return router.Outcome{}, err
						}
						resp, err := client.Do(req)
						if err != nil {
							return router.Outcome{}, err
						}
						defer func() { _ = resp.Body.Close() }()
						l.FirstToken()
						_, err = io.Copy(io.Discard, resp.Body)
						return router.Outcome{Status: resp.StatusCode}, err
					})
				if err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
				count.Add(1)
				select {
				case passed <- struct{}{}:
				default:
				}
			}
		})
	}
	for turn := range 60 {
		before := count.Load()
		if turn%10 == 9 {
			if _, err := Parse([]byte(file(turn)+"oops"), options()); err == nil {
				t.Error("a bad file was read")
			}
		}
		reload(t, g, file(turn))
		for count.Load() < before+20 && !t.Failed() { // some go by between two reloads
			<-passed
		}
	}
	close(stop)
	wg.Wait()
	cancel()
	<-ran
	for i := range served {
		if served[i].Load() == 0 {
			t.Errorf("r%d served nothing", i)
		}
	}
	for id, n := range inFlight(g) {
		if n != 0 {
			t.Errorf("%s has %d in flight", id, n)
		}
	}
	t.Logf("%d requests", count.Load())
}
