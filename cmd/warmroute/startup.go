package main

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/internal/errclass"
	"github.com/warmroute/router/loadview"
)

// maxAsked bounds the targets that are asked at once at the start.
const maxAsked = 32

// askAll asks each target once for its health, and logs those that do not answer. It blames nobody: the outcomes of
// requests, and the health probe if there is one, do.
func (s *service) askAll(ctx context.Context) {
	path := s.gateway.File().HealthProbe.Path
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxAsked)
	asked := make(map[string]bool) // the ranks of a provider have one address
	for _, m := range s.gateway.View().Snapshot() {
		ref, ok := m.Target.Ref.(*config.Target)
		if !ok || asked[ref.Base.String()] {
			continue
		}
		asked[ref.Base.String()] = true
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(ref.Base.String(), "/")+path, nil)
			if err != nil {
				return
			}
			r.Header = withHeader(r.Header, ref.Header)
			resp, err := s.transport.RoundTrip(r)
			switch {
			case ctx.Err() == context.Canceled:
			case err != nil:
				s.log.Warn("a target does not answer", "target", m.Target.ID, "err", errclass.Wrap(err))
			default:
				_ = resp.Body.Close()
				if resp.StatusCode >= http.StatusInternalServerError {
					s.log.Warn("a target is not healthy", "target", m.Target.ID, "status", resp.StatusCode)
				}
			}
		})
	}
}

// logChanges returns hooks that log the changes of the fleet and call those of next.
func (s *service) logChanges(next loadview.Trace) loadview.Trace {
	t := next
	t.StateChanged = func(id string, from, to router.State) {
		if to == router.Unhealthy || to == router.Tripped {
			s.log.Warn("target", "target", id, "was", from.String(), "is", to.String())
		} else {
			s.log.Info("target", "target", id, "was", from.String(), "is", to.String())
		}
		if next.StateChanged != nil {
			next.StateChanged(id, from, to)
		}
	}
	t.PanicChanged = func(v *loadview.View, on bool) {
		if on {
			s.log.Warn("most targets fail, so none is excluded")
		} else {
			s.log.Info("most targets serve again")
		}
		if next.PanicChanged != nil {
			next.PanicChanged(v, on)
		}
	}
	return t
}
