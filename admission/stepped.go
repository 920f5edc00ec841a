package admission

import (
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
	entered []*stepping // by the times of entry
	left    []*stepping // have ended, and Step has not reported them
	turn    int         // so that no model is first each time
}

// stepping is a request in a Stepped.
type stepping struct {
	ctx    context.Context
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
	s := &Stepped{queue: q}
	q.ended = func(w *waiter) {
		for i, e := range s.entered {
			if e.waiter == w {
				s.entered = slices.Delete(s.entered, i, i+1)
				s.left = append(s.left, e)
				return
			}
		}
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
	e := &stepping{ctx: ctx, ended: ended}
	q := s.queue
	e.waiter, e.until = q.waiter(ctx, w), q.now().Add(q.cfg.Load().MaxWait)
	s.entered = append(s.entered, e)
	q.enter(e.waiter)
}

// Step tries requests until no target has a place, and ends those that have waited for too long. Call
// it after Enter, after the first token and the end of a request, and at the time that it
// returns; that is zero if none waits.
func (s *Stepped) Step() (again time.Time) {
	q := s.queue
	now := q.now()
	for i := 0; i < len(s.entered); {
		switch e := s.entered[i]; {
		case e.ctx.Err() != nil:
			q.giveUp(e.waiter, Canceled) // takes it out of entered
		case !now.Before(e.until):
			q.giveUp(e.waiter, TooLong)
		default:
			i++
		}
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
	for _, e := range s.entered {
		if again.IsZero() || e.until.Before(again) {
			again = e.until
		}
	}
	if at := q.now().Add(look); at.Before(again) {
		again = at // as a Queue does
	}
	return again
}
