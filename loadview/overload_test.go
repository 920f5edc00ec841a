package loadview

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/vllmtest"
)

// TestOverloadOverSockets is TestGoodputUnderOverload with replicas that are real
// servers. Its bound is looser, for machines that are busy.
func TestOverloadOverSockets(t *testing.T) {
	if testing.Short() {
		t.Skip("5 s; TestGoodputUnderOverload has the same without sockets")
	}
	served := func(clients int) float64 {
		v := newView(t, Config{}, 0)
		var ms []Member
		for _, id := range []string{"a", "b"} {
			s := vllmtest.NewServer(vllmtest.Config{MaxSeqs: 8, MaxRequests: 8, ReplyTokens: 5})
			defer s.Close()
			ms = append(ms, Member{ID: id, Ref: s.URL})
		}
		set(t, v, ms...)
		r := router.New(pickLeast{}, v, router.Options{})
		const during = 1500 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		var wg sync.WaitGroup
		var n atomic.Int64
		for range clients {
			wg.Go(func() {
				for ctx.Err() == nil {
					if r.Do(ctx, router.Prompt{}, complete) == nil {
						n.Add(1)
					} else {
						time.Sleep(5 * time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		return float64(n.Load()) / during.Seconds()
	}
	below := served(15)
	for _, clients := range []int{17, 24} {
		got := served(clients)
		t.Logf("%d clients on 16 places: %.0f a second, %.2f of what 15 get", clients, got, got/below)
		if got < 0.6*below {
			t.Errorf("%d clients on 16 places: %.0f a second, 15 get %.0f", clients, got, below)
		}
	}
}

// complete sends a completion to the lease's target.
func complete(ctx context.Context, l *router.Lease) (router.Outcome, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Decision().Target.Ref.(string)+"/v1/completions",
		strings.NewReader(`{"prompt":"hello","max_tokens":5,"ignore_eos":true}`))
	if err != nil {
		return router.Outcome{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return router.Outcome{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return router.Outcome{Status: resp.StatusCode}, err
}

// TestOverloadServesAll has twice the clients that fit at engines that queue, that slow down, and that differ: every
// request is served, and no engine is blamed.
func TestOverloadServesAll(t *testing.T) {
	refuses := vllmtest.Config{MaxSeqs: 8, MaxRequests: 8, ReplyTokens: 5, TimeScale: 0.2}
	queues := vllmtest.Config{MaxSeqs: 4, ReplyTokens: 5, TimeScale: 0.2}
	slows := vllmtest.Config{ReplyTokens: 5, TimeScale: 0.2, Timing: vllmtest.Timing{
		Step: time.Millisecond, DecodeContext: 200_000}} // each request makes each step a millisecond longer
	for name, engines := range map[string][]vllmtest.Config{
		"queue": {queues, queues}, "slow down": {slows, slows},
		"refuse and queue": {refuses, queues}, "refuse and slow down": {refuses, slows},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(t, Config{Breaker: true, Trace: Trace{StateChanged: func(id string, from, to router.State) {
				t.Errorf("%s: %v to %v", id, from, to)
			}}}, 0)
			var ms []Member
			for i, c := range engines {
				s := vllmtest.NewServer(c)
				defer s.Close()
				ms = append(ms, Member{ID: []string{"a", "b"}[i], Ref: s.URL})
			}
			set(t, v, ms...)
			r := router.New(pickLeast{}, v, router.Options{})
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					for range 5 {
						if err := r.Do(t.Context(), router.Prompt{Model: "m"}, complete); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
