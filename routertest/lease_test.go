package routertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
)

// A host's handler is tested with a lease of its own, without a fleet.
func ExampleNewLease() {
	handle := func(l *router.Lease) { // of the host
		l.FirstToken()
		l.Done(router.Outcome{Status: http.StatusOK, OutputTokens: 7})
	}
	lease, err := routertest.NewLease(context.Background(), router.Decision{
		Prompt: router.Prompt{Text: "hello"},
		Target: router.Target{ID: "vllm-1", Ref: "10.0.0.1:8000"},
	})
	if err != nil {
		panic(err)
	}
	handle(lease.Lease)
	o, settled := lease.Outcome()
	fmt.Println(lease.Decision().Target.ID, o.Stage, settled, lease.SawToken())
	// Output: vllm-1 finished true true
}

func TestNewLease(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	d := router.Decision{
		Prompt: router.Prompt{Text: "hello"}, Target: router.Target{ID: "a", State: router.Cooling, Weight: 2},
		Cached: 3, Length: 5, Reason: router.ReasonWarm, Memo: 7,
	}
	l, err := routertest.NewLease(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Decision(); got.Target.ID != "a" || got.Cached != 3 || got.Reason != router.ReasonWarm ||
		got.Memo != 7 || l.Attempt() != 1 {
		t.Errorf("%+v", got)
	}
	if _, settled := l.Outcome(); settled || l.SawToken() {
		t.Error("it begins settled, or with a token")
	}
	if next, err := l.Retry(ctx, router.Outcome{Err: gone}); next != nil || err != gone {
		t.Errorf("(%v, %v)", next, err)
	}
	if o, settled := l.Outcome(); !settled || o.Stage != router.Failed || o.Err != gone {
		t.Errorf("%+v", o)
	}
	cancel(gone)
	if l, err := routertest.NewLease(ctx, d); l != nil || err != gone {
		t.Errorf("(%v, %v)", l, err)
	}
}
