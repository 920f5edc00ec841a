package sim

import (
	"context"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/precisecacheaware"
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

// Whole paths that others cannot apply are worth little, and frames that wait for a timer less than those that do not.
func TestOtherSharing(t *testing.T) {
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
	run := func(s Sharing) *Result {
		r, err := Run(context.Background(), Config{
			Workload: w, Seed: 1, Gateways: 4, Scrape: 5 * time.Second, Share: s,
			Policy: Policy{Name: leastwork.Name, New: func(e Env) (router.Strategy, error) {
				return leastwork.New(leastwork.Config{Rand: e.Rand, Share: e.Share})
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	apart := run(Sharing{})
	paths := run(Sharing{On: true, Paths: true, Every: time.Second})
	timer := run(Sharing{On: true, Every: 10 * time.Second, NoLoad: true})
	shared := run(Sharing{On: true})
	if paths.Frames != 0 || timer.Frames == 0 {
		t.Errorf("%d frames of paths, %d of a timer", paths.Frames, timer.Frames)
	}
	if paths.HitShare > apart.HitShare+0.1 || timer.HitShare < apart.HitShare || shared.TTFT.Mean > timer.TTFT.Mean {
		t.Errorf("hits %.3f, paths %.3f, a timer %.3f; time to first token %.3f s with it, %.3f s without", apart.HitShare,
			paths.HitShare, timer.HitShare, timer.TTFT.Mean, shared.TTFT.Mean)
	}
	if again := run(Sharing{On: true, Paths: true, Every: time.Second}); again.TTFT.Mean != paths.TTFT.Mean {
		t.Error("equal seeds give other runs")
	}
}

// Eight gateways are as good as one also if all depends on the load: those that choose at the same moment do not meet.
func TestSharingUnseen(t *testing.T) {
	var source trace.Source
	for _, s := range trace.Generated() {
		if s.Name == "none" {
			source = s
		}
	}
	w, err := source.Build(14, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Policy{
		{Name: leastwork.Name, New: func(e Env) (router.Strategy, error) {
			return leastwork.New(leastwork.Config{Rand: e.Rand, Share: e.Share})
		}},
		{Name: precisecacheaware.Name, Exact: true, New: func(e Env) (router.Strategy, error) {
			return precisecacheaware.New(precisecacheaware.Config{Rand: e.Rand, Share: e.Share, Now: e.Now, Index: e.Index,
				BlockSize: e.Calibration.BlockSize})
		}},
	} {
		run := func(gateways int, s Sharing) float64 {
			r, err := Run(context.Background(), Config{Workload: w, Seed: 1, Gateways: gateways, Share: s, Policy: p})
			if err != nil {
				t.Fatal(err)
			}
			return r.TTFT.Mean
		}
		one, shared := run(1, Sharing{}), run(8, Sharing{On: true, Lag: 5 * time.Millisecond})
		t.Logf("%s: one %.4f s, eight that share %.4f", p.Name, one, shared)
		if shared > 1.06*one {
			t.Errorf("%s: one %.3f s, eight that share %.3f", p.Name, one, shared)
		}
	}
}
