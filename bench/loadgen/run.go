// Package loadgen drives a workload in a closed loop, over HTTP on the loopback
// interface or against anything else that takes requests, and judges the
// routing of its requests. It is bounded: a fixed list of requests, a fixed
// number of clients, and a context.
package loadgen

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// Reply is the outcome of one request.
type Reply struct {
	// Engine is the index of the engine that served it.
	Engine int
	// Seq orders the requests as the engine received them; 0: unknown, and the
	// order in which they were sent stands for it.
	Seq uint64
	// First is the time from sending to the first byte of the reply's body; 0:
	// unknown.
	First time.Duration
}

// Sent is one request that was sent and answered.
type Sent struct {
	Request workload.Request
	Reply
	Order int           // in which it was sent, from 0
	Took  time.Duration // from sending to the end of the reply
}

// Run sends requests with the given number of clients and returns them in the
// order in which they were sent. Each client takes the next request as soon as
// its last one was answered, and waits if the previous turn of the same
// conversation is still being answered. The first error, or ctx, ends it.
func Run(ctx context.Context, requests []workload.Request, clients int,
	send func(context.Context, workload.Request) (Reply, error)) ([]Sent, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// before[i] is closed when the turn before request i has been answered.
	before := make([]chan struct{}, len(requests))
	after := make([]chan struct{}, len(requests))
	last := make(map[int]int)
	for i, r := range requests {
		after[i] = make(chan struct{})
		if p, ok := last[r.Conversation]; ok {
			before[i] = after[p]
		}
		last[r.Conversation] = i
	}

	out := make([]Sent, len(requests))
	var next, order atomic.Int64
	var wg sync.WaitGroup
	for range max(clients, 1) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(requests) {
					return
				}
				if before[i] != nil {
					select {
					case <-before[i]:
					case <-ctx.Done():
					}
				}
				if ctx.Err() != nil {
					return
				}
				s := &out[i]
				s.Request, s.Order = requests[i], int(order.Add(1))-1
				start := time.Now()
				reply, err := send(ctx, requests[i])
				if err != nil {
					cancel(fmt.Errorf("turn %d of conversation %d: %w", requests[i].Turn, requests[i].Conversation, err))
					return
				}
				s.Reply, s.Took = reply, time.Since(start)
				close(after[i])
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	sorted := make([]Sent, len(out))
	for _, s := range out {
		sorted[s.Order] = s
	}
	return sorted, nil
}
