package sim

import (
	"context"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/strategy/leastwork"
)

// Gateways that share take about as long as one, and those that share nothing far longer; half of the frames lost is
// not much worse. Equal seeds give equal runs.
func TestSharing(t *testing.T) {
	var source trace.Source
	for _, s := range trace.Generated() {
		if s.Name == "b2b-saas" {
			source = s
		}
	}
	w, err := source.Build(4, 1)
	if err != nil {
		t.Fatal(err)
	}
	run := func(gateways int, s Sharing) float64 {
		r, err := Run(context.Background(), Config{
			Workload: w, Seed: 1, Gateways: gateways, Scrape: 5 * time.Second, Share: s,
			Policy: Policy{Name: leastwork.Name, New: func(e Env) (router.Strategy, error) {
				return leastwork.New(leastwork.Config{Rand: e.Rand, Share: e.Share})
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if (r.Frames > 0) != s.On {
			t.Errorf("%d frames, on: %v", r.Frames, s.On)
		}
		return r.TTFT.Mean
	}
	one, apart := run(1, Sharing{}), run(4, Sharing{})
	lag := Sharing{On: true, Lag: 5 * time.Millisecond}
	shared := run(4, lag)
	if shared > 1.05*one || apart < 1.5*one {
		t.Errorf("one %.3f s, four that share %.3f, four that do not %.3f", one, shared, apart)
	}
	if again := run(4, lag); again != shared {
		t.Errorf("the same run again: %v, %v", shared, again)
	}
	lag.Loss = 0.5
	if lossy := run(4, lag); lossy > 1.3*one {
		t.Errorf("with losses %.3f s, one %.3f", lossy, one)
	}
}
