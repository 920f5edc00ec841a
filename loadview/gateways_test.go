package loadview_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/vllmtest"
)

// imbalance sends traffic through some gateways to four replicas and returns how
// uneven it is: the most in flight on a replica over the mean, both summed up over
// time. Requests take 140 to 560 ms, and pages are read every 50 ms: as requests
// of 14 to 56 s at the default interval.
func imbalance(t *testing.T, gateways, clients int, scrape bool) float64 {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var members []loadview.Member
	replicas := map[string]*vllmtest.Server{}
	for i := range 4 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.05})
		t.Cleanup(s.Close)
		m := loadview.Member{ID: fmt.Sprint(i)}
		if scrape {
			m.Metrics = s.MetricsURL()
		}
		members = append(members, m)
		replicas[m.ID] = s
	}
	var views []*loadview.View
	for g := range gateways {
		v, err := loadview.New(loadview.Config{Scrape: loadview.Scrape{Interval: 50 * time.Millisecond,
			StaleAfter: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Set(members); err != nil {
			t.Fatal(err)
		}
		views = append(views, v)
		s, err := leastload.New(leastload.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := router.New(s, v, router.Options{})
		wg.Go(func() { _ = v.Run(ctx) })
		for c := range clients / gateways {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), uint64(c)))
				for ctx.Err() == nil {
					err := r.Do(ctx, router.Prompt{}, func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
						return complete(ctx, replicas[l.Decision().Target.ID], 200+rng.IntN(600))
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	var most, mean float64
	end := time.Now().Add(3 * time.Second)
	for time.Now().Before(end) {
		time.Sleep(3 * time.Millisecond)
		var inFlight [4]int
		for _, v := range views {
			for i, s := range v.Snapshot() {
				inFlight[i] += s.Target.Load.InFlight
			}
		}
		most += float64(max(inFlight[0], inFlight[1], inFlight[2], inFlight[3]))
		mean += float64(inFlight[0]+inFlight[1]+inFlight[2]+inFlight[3]) / 4
	}
	return most / mean
}

func complete(ctx context.Context, s *vllmtest.Server, tokens int) (router.Outcome, error) {
	body := fmt.Sprintf(`{"prompt":"hello","max_tokens":%d,"ignore_eos":true}`, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return router.Outcome{}, err
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		return router.Outcome{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return router.Outcome{Status: resp.StatusCode}, err
}

// Two gateways that send half the traffic each spread it about as evenly as one
// that sends it all, because each sees in the pages what the other has sent.
// Without the pages each is even by itself, and what it adds to the other's is
// left to chance.
func TestTwoGateways(t *testing.T) {
	if testing.Short() || racetest.Enabled {
		t.Skip("18 s of one count; make norace runs it")
	}
	for _, c := range []struct {
		clients int
		worse   float64 // how much more uneven it is without the pages, at least
	}{{4, 1.15}, {12, 1.02}} {
		one := imbalance(t, 1, c.clients, true)
		two := imbalance(t, 2, c.clients, true)
		blind := imbalance(t, 2, c.clients, false)
		t.Logf("%d clients, the most in flight on a replica over the mean: one gateway %.2f, two gateways %.2f, two that "+
			"do not scrape %.2f",
			c.clients, one, two, blind)
		if two > 1.3*one {
			t.Errorf("%d clients: two gateways are more than 1.3 times as uneven as one", c.clients)
		}
		if blind < c.worse*two {
			t.Errorf("%d clients: scraping helps less than %v times", c.clients, c.worse)
		}
	}
}
