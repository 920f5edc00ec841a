package frameworks

import (
	"context"
	"sync/atomic"

	"github.com/go-kratos/kratos/v2/selector"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

type kratosKey struct{}

// WithRequest returns a context in which Kratos selects the nodes of r: one for each request, with all of its retries.
func WithRequest(ctx context.Context, r *router.Request) context.Context {
	return context.WithValue(ctx, kratosKey{}, r)
}

// Kratos is a selector of Kratos. Without WithRequest, requests are routed by load.
type Kratos struct {
	Router *router.Router
	Fleet  *loadview.View

	failed atomic.Pointer[error] // of the last Apply
}

// Apply makes the nodes the fleet's members, by their addresses. If a node has no usable address, Select returns the
// error until the next Apply.
func (k *Kratos) Apply(nodes []selector.Node) {
	members := make([]loadview.Member, len(nodes))
	for i, n := range nodes {
		members[i] = loadview.Member{ID: n.Address(), Ref: n}
	}
	if err := k.Fleet.Set(members); err != nil {
		k.failed.Store(&err)
		return
	}
	k.failed.Store(nil)
}

// Select returns the node of the request's next attempt, and the function that settles it.
func (k *Kratos) Select(ctx context.Context, _ ...selector.SelectOption) (selector.Node, selector.DoneFunc, error) {
	if err := k.failed.Load(); err != nil {
		return nil, nil, *err
	}
	r, ok := ctx.Value(kratosKey{}).(*router.Request)
	if !ok {
		r = k.Router.Request(router.Prompt{})
	}
	l, err := r.Next(ctx)
	if err != nil {
		return nil, nil, selector.ErrNoAvailable.WithCause(err)
	}
	return l.Decision().Target.Ref.(selector.Node), func(_ context.Context, d selector.DoneInfo) {
		o := router.Outcome{Err: d.Err}
		if d.Err != nil {
			o.Stage = router.Failed
		}
		l.Done(o)
	}, nil
}
