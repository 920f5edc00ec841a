package sim

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router/admission"
)

// TestLine: a line that nobody waits in changes nothing; another one keeps the bound of each replica, is the same
// each time, and ends or sheds all requests.
func TestLine(t *testing.T) {
	w := workload(t, "none", 4, 400)
	run := func(line *admission.Config, verify func(*engine)) *Result {
		r, err := Run(context.Background(), Config{Workload: w, Policy: cacheAware, Seed: 1, Replicas: 2, Line: line,
			Requests: true, verify: verify})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	without := run(nil, nil)
	if d := cmp.Diff(without, run(&admission.Config{Requests: 1 << 20}, nil)); d != "" {
		t.Error("a line that nobody waits in changes the run:", d)
	}
	most := 0
	held := func() *Result {
		return run(&admission.Config{Requests: 3, MaxWaiting: 1 << 20, MaxWait: time.Hour}, func(e *engine) {
			most = max(most, e.queued())
		})
	}
	r := held()
	if most != 3 || r.Finished != r.Requests || r.TTFT.Mean <= without.TTFT.Mean {
		t.Errorf("%d at one engine, want 3; %d of %d finished", most, r.Finished, r.Requests)
	}
	if d := cmp.Diff(r, held()); d != "" {
		t.Error("not the same again:", d)
	}
	r = run(&admission.Config{Requests: 3, MaxWait: time.Second}, nil)
	if r.Shed == 0 || r.Finished+r.Shed != r.Requests {
		t.Errorf("%d finished, %d shed of %d", r.Finished, r.Shed, r.Requests)
	}
}
