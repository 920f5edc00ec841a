package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	redis "github.com/redis/go-redis/v9"
)

// hear keeps a connection with all subscriptions, until the Bus is closed.
func (b *Bus) hear() {
	for b.ctx.Err() == nil {
		err := b.listen()
		b.state(&b.hearing, false, err)
		select {
		case <-b.ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// listen passes on the frames of one connection, and returns when it ends.
func (b *Bus) listen() error {
	ps := b.client.Subscribe(b.ctx) // it connects with the first channel
	ctx, cancel := context.WithCancel(b.ctx)
	var keeper sync.WaitGroup
	defer func() {
		cancel()
		_ = ps.Close()
		keeper.Wait()
	}()
	inbox := b.replies(b.inbox)
	if err := ps.Subscribe(ctx, inbox); err != nil {
		return err
	}
	keeper.Go(func() { b.keep(ctx, ps) })
	for {
		m, err := ps.ReceiveTimeout(ctx, silence)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" && m.Channel == inbox {
				b.state(&b.hearing, true, nil)
			}
		case *redis.Message:
			if m.Channel == inbox {
				b.replied([]byte(m.Payload))
			} else {
				b.dispatch(m.Channel, []byte(m.Payload))
			}
		}
	}
}

// keep has the connection subscribe to the wanted channels, and asks for signs of life.
func (b *Bus) keep(ctx context.Context, ps *redis.PubSub) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	have := map[string]bool{}
	for {
		var add, remove []string
		b.mu.Lock()
		for c := range b.subs {
			if !have[c] {
				add = append(add, c)
			}
		}
		for c := range have {
			if len(b.subs[c]) == 0 {
				remove = append(remove, c)
			}
		}
		b.mu.Unlock()
		if len(add) > 0 && ps.Subscribe(ctx, add...) != nil {
			_ = ps.Close() // it ends listen, which begins again
			return
		}
		if len(remove) > 0 && ps.Unsubscribe(ctx, remove...) != nil {
			_ = ps.Close()
			return
		}
		for _, c := range add {
			have[c] = true
		}
		for _, c := range remove {
			delete(have, c)
		}
		select {
		case <-ctx.Done():
			return
		case <-b.changed:
		case <-t.C:
			if ps.Ping(ctx) != nil {
				_ = ps.Close()
				return
			}
		}
	}
}

// A subscriber has frames that wait for it, and a goroutine.
type subscriber struct {
	receive func([]byte)
	frame   bool          // frames come, not requests
	wake    chan struct{} // there is a frame
	stop    chan struct{}

	mu     sync.Mutex
	queue  [][]byte
	queued int // bytes
}

// Subscribe is share.Bus's.
func (b *Bus) Subscribe(subject string, receive func(data []byte)) (stop func(), err error) {
	return b.subscribe(b.frames(subject), &subscriber{receive: receive, frame: true})
}

func (b *Bus) subscribe(channel string, s *subscriber) (stop func(), err error) {
	s.wake, s.stop = make(chan struct{}, 1), make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	b.subs[channel] = append(slices.Clone(b.subs[channel]), s)
	b.running.Go(func() { s.run(b) })
	wake(b.changed)
	return sync.OnceFunc(func() {
		close(s.stop)
		b.mu.Lock()
		left := slices.DeleteFunc(slices.Clone(b.subs[channel]), func(x *subscriber) bool { return x == s })
		if b.subs[channel] = left; len(left) == 0 {
			delete(b.subs, channel)
		}
		b.mu.Unlock()
		wake(b.changed)
	}), nil
}

// dispatch queues data, which nobody changes, for each subscriber of channel.
func (b *Bus) dispatch(channel string, data []byte) {
	b.mu.Lock()
	subs := b.subs[channel]
	b.mu.Unlock()
	for _, s := range subs {
		s.mu.Lock()
		if s.queued >= b.cfg.MaxPending {
			b.dropped.Add(1)
		} else {
			s.queue = append(s.queue, data)
			s.queued += len(data) + overhead
		}
		s.mu.Unlock()
		wake(s.wake)
	}
}

// overhead is what a waiting frame takes besides its bytes: so empty ones are bounded, too.
const overhead = 48

func (s *subscriber) run(b *Bus) {
	for {
		s.mu.Lock()
		var data []byte
		some := len(s.queue) > 0
		if some {
			data = s.queue[0]
			s.queue[0] = nil
			if s.queue = s.queue[1:]; len(s.queue) == 0 {
				s.queue = nil
			}
			s.queued -= len(data) + overhead
		}
		s.mu.Unlock()
		select {
		case <-s.stop:
			return
		case <-b.ctx.Done():
			return
		default:
		}
		if some {
			if s.frame {
				b.received.Add(1)
			}
			s.receive(slices.Clone(data)) // other subscribers have the same
			continue
		}
		select {
		case <-s.stop:
			return
		case <-b.ctx.Done():
			return
		case <-s.wake:
		}
	}
}
