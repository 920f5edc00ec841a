package sim

import (
	"context"
	"iter"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
)

// line is a gateway's waiting line: that of package admission, in steps. Each Route runs
// in a coroutine, which stops while its request waits.
type line struct {
	*admission.Stepped
	freed bool
	ready []*routing // in the order in which they go on
	next  instant    // of the next step by time
}

var _ router.Queue = (*line)(nil)

// routing is a call of Route.
type routing struct {
	yield func(struct{}) bool
	next  func() (struct{}, bool)
	lease *router.Lease
	err   error
	done  func(*router.Lease, error)
}

// Freed is router.Queue's.
func (l *line) Freed() { l.freed = true }

// Wait is router.Queue's.
func (l *line) Wait(ctx context.Context, w *router.Waiting) (err error) {
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

// route calls done with the result of Route, now or later.
func (l *line) route(r *router.Router, p router.Prompt, exclude []string, done func(*router.Lease, error)) {
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

// settle serves the line of each gateway until nothing changes at this instant.
func (f *fleet) settle() {
	for g, gt := range f.gates {
		l := gt.line
		for l != nil && l.freed {
			l.freed = false
			again := l.Step()
			ready := l.ready
			l.ready = nil
			for _, c := range ready {
				c.resume()
			}
			if t := at(again.Sub(base)); !again.IsZero() && (l.next <= f.now || t < l.next) {
				l.next = t
				f.post(event{at: t, kind: evLine, index: int32(g)})
			}
		}
	}
}
