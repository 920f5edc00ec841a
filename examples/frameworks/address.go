package frameworks

import (
	"context"

	"github.com/warmroute/router"
)

// AwaitBestAddress is the shape of KubeAI's load balancer: it returns an address, and a function that the host calls
// once the request has ended. With Options.Wait of the Router it waits while a fleet scales up from zero.
func AwaitBestAddress(ctx context.Context, r *router.Router, p router.Prompt) (string, func(), error) {
	l, err := r.Route(ctx, p)
	if err != nil {
		return "", nil, err
	}
	return l.Decision().Target.ID, func() { l.Done(router.Outcome{}) }, nil
}
