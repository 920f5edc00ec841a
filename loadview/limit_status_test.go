package loadview

import (
	"context"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// The limit that refusals taught is in the Snapshot: lower after a refusal, one more after as many successes, gone
// once nothing refuses any more.
func TestStatusLimit(t *testing.T) {
	now := time.Unix(1000, 0)
	v, err := New(Config{Now: func() time.Time { return now }, Rand: func() uint64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Set([]Member{{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	send := func() router.Flight {
		_, f, err := v.Choose(context.Background(), func(ts []router.Target) (router.Decision, error) {
			return router.Decision{Target: ts[0]}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	is := func(want int) {
		t.Helper()
		if got := v.Snapshot()[0].Limit; got != want {
			t.Errorf("a limit of %d, want %d", got, want)
		}
	}
	var live []router.Flight
	for range 4 {
		live = append(live, send())
	}
	is(0)
	refused := router.Outcome{Stage: router.Failed, Status: 429, RetryAfter: time.Minute}
	live[3].Done(refused)
	is(3)
	live[2].Done(refused)
	is(2)
	for range 2 {
		live[0].Done(router.Outcome{Stage: router.Finished, Status: 200})
		live = append(live[1:2:2], send())
	}
	is(3)
	now = now.Add(time.Hour)
	is(0)
}
