package admission

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"time"

	"github.com/warmroute/router"
)

// Stepped is a Queue without goroutines and timers, for a program that has a clock of its
// own, such as a simulation: the same requests at the same times get the same places.
// One goroutine at a time uses it. Make one with NewStepped.
type Stepped struct {
	queue   *Queue
	entered list.List                 // of *stepping, by the times of entry
	at      map[*waiter]*list.Element // in entered
	cancels map[*stepping]struct{}    // those with a context that may end
	left    []*stepping               // have ended, and Step has not reported them
	number  uint64
	turn    int // so that no model is first each time
}

// stepping is a request in a Stepped.
type stepping struct {
	ctx    context.Context
	number uint64 // in the order of entry
	waiter *waiter
	until  time.Time
	ended  func(error)
}

// NewStepped returns an empty Stepped with the clock now. The error is that of New.
func NewStepped(cfg Config, now func() time.Time) (*Stepped, error) {
	q, err := makeQueue(cfg, now)
	if err != nil {
		return nil, err
	}
	s := &Stepped{queue: q, at: map[*waiter]*list.Element{}, cancels: map[*stepping]struct{}{}}
	q.ended = func(w *waiter) {
		e := s.entered.Remove(s.at[w]).(*stepping)
		delete(s.at, w)
		delete(s.cancels, e)
		s.left = append(s.left, e)
	}
	return s, nil
}

// Places is that of Queue.
func (s *Stepped) Places(targets []router.Target) []router.Target { return s.queue.Places(targets) }

// Busy is that of Queue.
func (s *Stepped) Busy(model string) bool { return s.queue.Busy(model) }

// Stats is that of Queue.
func (s *Stepped) Stats() Stats { return s.queue.Stats() }

// Enter is Queue.Wait, but does not block: a Step calls ended with the result of Wait.
// The end of ctx is noticed by the next Step.
func (s *Stepped) Enter(ctx context.Context, w *router.Waiting, ended func(error)) {
	s.number++
	e := &stepping{ctx: ctx, number: s.number, ended: ended}
	q := s.queue
	e.waiter, e.until = q.waiter(ctx, w), q.now().Add(q.cfg.Load().MaxWait)
	s.at[e.waiter] = s.entered.PushBack(e)
	if ctx.Done() != nil {
		s.cancels[e] = struct{}{}
	}
	q.enter(e.waiter)
}

// Step tries requests until no target has a place, and ends those that have waited for too long. Call
// it after Enter, after the first token and the end of a request, and at the time that it
// returns; that is zero if none waits.
func (s *Stepped) Step() (again time.Time) {
	q := s.queue
	var done []*stepping
	for e := range s.cancels {
		if e.ctx.Err() != nil {
			done = append(done, e)
		}
	}
	slices.SortFunc(done, func(a, b *stepping) int { return cmp.Compare(a.number, b.number) })
	for _, e := range done {
		q.giveUp(e.waiter, Canceled)
	}
	now := q.now()
	for f := s.entered.Front(); f != nil && !now.Before(f.Value.(*stepping).until); f = s.entered.Front() {
		q.giveUp(f.Value.(*stepping).waiter, TooLong)
	}
	models := make([]string, 0, len(q.lines))
	for model := range q.lines {
		models = append(models, model)
	}
	slices.Sort(models)
	s.turn++
	look := lookAgain
	for i := range models {
		n := q.lines[models[(i+s.turn)%len(models)]]
		if n == nil {
			continue
		}
		if after, empty := n.serve(); !empty && after.After > 0 {
			look = min(look, max(after.After, minLook))
		}
	}
	left := s.left
	s.left = nil
	for _, e := range left {
		e.ended(q.result(e.ctx, e.waiter))
	}
	if f := s.entered.Front(); f != nil {
		again = f.Value.(*stepping).until
	}
	if at := q.now().Add(look); at.Before(again) {
		again = at // as a Queue does
	}
	return again
}
