package loadview

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// A long reply that times out blames nobody while the member answers others; a
// member that answers nobody is blamed.
func TestTimeoutBesideAnswers(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		err   error
		other func(*View)
		want  int
	}{
		"nobody else":      {router.ErrAttemptTimeout, func(*View) {}, 1},
		"another finished": {router.ErrAttemptTimeout, func(v *View) { send(t, v, a).Done(ok) }, 0},
		"another began":    {context.DeadlineExceeded, func(v *View) { send(t, v, a).FirstToken() }, 0},
		"another got a status": {os.ErrDeadlineExceeded, func(v *View) { send(t, v, a).Done(router.Outcome{Status: 404}) },
			0},
		"another was canceled": {router.ErrAttemptTimeout,
			func(v *View) { send(t, v, a).Done(router.Outcome{Stage: router.Canceled}) }, 1},
		"no connection": {dial, func(v *View) { send(t, v, a).Done(ok) }, 1},
		"no time-out":   {net.ErrClosed, func(v *View) { send(t, v, a).Done(ok) }, 1},
	} {
		v := newView(t, Config{}, 1)
		send(t, v, a).Done(ok) // before
		f := send(t, v, a)
		c.other(v)
		f.Done(router.Outcome{Stage: router.Failed, Err: c.err})
		if n := status(t, v, a).Failures; n != c.want {
			t.Errorf("%s: %d failures, want %d", name, n, c.want)
		}
	}
}

// A probe that is slow does not take a member out that answers requests.
func TestSlowProbeBesideAnswers(t *testing.T) {
	e := newEngine(t)
	var probes atomic.Int64
	e.answer(func(w http.ResponseWriter, r *http.Request) bool {
		probes.Add(1)
		<-r.Context().Done()
		return true
	})
	cfg := fast()
	cfg.Probe.Timeout = 5 * time.Millisecond
	v := newView(t, cfg, 0)
	set(t, v, Member{ID: a, Health: e.URL})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, f, err := v.Choose(ctx, func(ts []router.Target) (router.Decision, error) {
				return router.Decision{Target: ts[0]}, nil
			})
			if err == nil {
				f.Done(ok)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	run(t, v)
	eventually(t, "many probes timed out", func() bool { return probes.Load() > 3*DefaultProbeFailures })
	if s := stateOf(v, a).Target.State; s != router.Ready {
		t.Errorf("it is %v while it answers", s)
	}
	stop()
	<-done
	eventually(t, "it answers nothing any more", func() bool { return stateOf(v, a).Target.State == router.Unhealthy })
}
