package sim

import (
	"context"
	"iter"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
)

// Line is a gateway's waiting line: that of package admission, in steps. Each Route runs
// in a coroutine, which stops while its request waits. Make one with NewLine.
type Line struct {
	*admission.Stepped
	freed bool
	ready []*routing // in the order in which they go on
	next  instant    // of the fleet's next step by time
}

// NewLine returns an empty Line with the clock now.
func NewLine(cfg admission.Config, now func() time.Time) (*Line, error) {
	steps, err := admission.NewStepped(cfg, now)
	if err != nil {
		return nil, err
	}
	return &Line{Stepped: steps}, nil
}

var _ router.Queue = (*Line)(nil)

// routing is a call of Route.
type routing struct {
	yield func(struct{}) bool
	next  func() (struct{}, bool)
	lease *router.Lease
	err   error
	done  func(*router.Lease, error)
}

// Freed is router.Queue's.
func (l *Line) Freed() { l.freed = true }

// Wait is router.Queue's.
func (l *Line) Wait(ctx context.Context, w *router.Waiting) (err error) {
	r := ctx.Value(routingKey{}).(*routing)
	l.Enter(ctx, w, func(e error) {
		err = e
		l.ready = append(l.ready, r)
	})
	l.freed = true
	r.yield(struct{}{})
	return err
}

type routingKey struct{}

// Route calls done with the result of r.Route, now or in a Settle.
func (l *Line) Route(r *router.Router, p router.Prompt, exclude []string, done func(*router.Lease, error)) {
	c := &routing{done: done}
	ctx := context.WithValue(context.Background(), routingKey{}, c)
	c.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		c.lease, c.err = r.Route(ctx, p, exclude...)
	})
	c.resume()
}

// resume runs c until it waits or ends.
func (c *routing) resume() {
	if _, waits := c.next(); !waits {
		c.done(c.lease, c.err)
	}
}

// Settle lets requests go on until none finds a place, if there may be one by now: a
// request came, or has come further, or the time of a Settle before has come. It returns
// that time; ok is false if nothing was to be done.
func (l *Line) Settle(due bool) (again time.Time, ok bool) {
	for l.freed || due {
		l.freed, due = false, false
		again, ok = l.Step(), true
		ready := l.ready
		l.ready = nil
		for _, c := range ready {
			c.resume()
		}
	}
	return again, ok
}

// settle serves the lines of the gateways.
func (f *fleet) settle() {
	for g, gt := range f.gates {
		if gt.line == nil {
			continue
		}
		again, ok := gt.line.Settle(gt.line.next == f.now)
		if !ok || again.IsZero() {
			continue
		}
		if t := at(again.Sub(base)); gt.line.next <= f.now || t < gt.line.next {
			gt.line.next = t
			f.post(event{at: t, kind: evLine, index: int32(g)})
		}
	}
}
