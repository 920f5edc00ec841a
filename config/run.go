package config

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/warmroute/router/config/file"
	"go.uber.org/zap"
)

// errRunning is the error of a second Run.
var errRunning = errors.New("config: the Gateway runs already")

// running is a subscription that is followed.
type running struct {
	stop context.CancelFunc
	done chan struct{}
}

// Run scrapes, probes, polls and follows KV events, as the file in place says, until ctx
// is done. It returns ctx's cause when all of that has ended. A second Run at the same
// time is an error. Without Run the Gateway routes by its own requests alone.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.reloading.Lock()
	if g.run != nil {
		g.reloading.Unlock()
		return errRunning
	}
	g.run = ctx
	g.subscribe(g.now.Load())
	g.reloading.Unlock()

	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{g.view.Run, g.poller.Run, g.depart} {
		wg.Go(func() { cancel(run(ctx)) })
	}
	wg.Wait()
	g.reloading.Lock()
	defer g.reloading.Unlock()
	for sub, r := range g.subs {
		r.stop()
		<-r.done
		delete(g.subs, sub)
	}
	g.run = nil
	return context.Cause(ctx)
}

// depart drops members that have left and finished.
func (g *Gateway) depart(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		g.reloading.Lock()
		if len(g.leaving) > 0 {
			var members = g.now.Load().members
			members, g.leaving = g.departed(members, g.leaving)
			// Set refuses nothing that it has taken before.
			_ = g.view.Set(members)
		}
		g.reloading.Unlock()
	}
}

// subscribe ends the subscriptions that s does not have and begins those that do
// not run. The lock is held.
func (g *Gateway) subscribe(s *state) {
	ids := make(map[string]bool, len(s.subs))
	for sub := range s.subs {
		for _, id := range sub.targets() {
			ids[id] = true
		}
	}
	for sub, r := range g.subs {
		if !s.subs[sub] {
			r.stop()
		}
	}
	for sub, r := range g.subs {
		if s.subs[sub] {
			continue
		}
		<-r.done
		delete(g.subs, sub)
		for _, id := range sub.targets() {
			if ids[id] && sub.index == s.index {
				sub.index.Reset(id)
			} else {
				sub.index.Forget(id)
			}
		}
	}
	for sub := range s.subs {
		if g.subs[sub] != nil {
			continue
		}
		ctx, stop := context.WithCancel(g.run)
		r := &running{stop: stop, done: make(chan struct{})}
		g.subs[sub] = r
		go g.follow(ctx, sub, s.file, r.done)
	}
}

// The waits between two attempts at a subscription that ended by itself.
const (
	minAgain = time.Second
	maxAgain = 30 * time.Second
)

// follow keeps one subscription going.
func (g *Gateway) follow(ctx context.Context, sub subscription, f *file.File, done chan struct{}) {
	defer close(done)
	var ranks []string
	if sub.ranks > 0 {
		ranks = sub.targets()
	}
	for wait := minAgain; ; wait = min(2*wait, maxAgain) {
		r, err := g.options.Subscribe(Subscription{
			ID: sub.id, Ranks: ranks, Endpoint: sub.endpoint, Replay: sub.replay, Topic: sub.topic, Index: sub.index,
			Egress: f.Policy(), StaleAfter: sub.stale, Logger: g.options.Logger,
		})
		if err == nil {
			err = r.Run(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if log := g.options.Logger; log != nil {
			log.Warn("a subscription to KV events ended",
				zap.String("target", sub.id), zap.Duration("again_in", wait), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
