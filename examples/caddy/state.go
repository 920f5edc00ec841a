package warmroute

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"

	"github.com/warmroute/router"
)

// states has a *state for each Strategy in use. It is a global because it outlives
// configurations: a reload makes the new one before it cleans up the old.
var states = caddy.NewUsagePool()

// state is shared by policies of one Strategy: the learned prompts, the requests in
// flight and the counts of outcomes.
type state struct {
	strategy string
	fleet    fleet
	router   *router.Router

	sent, finished, failed, canceled, noTarget, unread atomic.Uint64
	cached, length                                     atomic.Uint64 // bytes
}

func newState(s Strategy) (*state, error) {
	strategy, err := s.build()
	if err != nil {
		return nil, err
	}
	st := &state{strategy: s.Name}
	st.router = router.New(strategy, &st.fleet, router.Options{Trace: router.Trace{
		Routed: func(_ context.Context, i router.RouteInfo) {
			st.sent.Add(1)
			st.cached.Add(uint64(i.Decision.Cached))
			st.length.Add(uint64(i.Decision.Length))
		},
		NoTarget: func(context.Context, router.Prompt, error) { st.noTarget.Add(1) },
		Done: func(_ context.Context, _ router.Decision, o router.Outcome) {
			switch o.Stage {
			case router.Finished:
				st.finished.Add(1)
			case router.Failed:
				st.failed.Add(1)
			default:
				st.canceled.Add(1)
			}
		},
	}})
	return st, nil
}

// Destruct has nothing to do: no goroutine or connection is the state's.
func (*state) Destruct() error { return nil }

// Status is one element of the reply to GET /warmroute/status of Caddy's admin API.
// All but InFlight are counts since the strategy was first configured.
type Status struct {
	Strategy string `json:"strategy"`
	// Policies is how many policies share this.
	Policies int `json:"policies"`
	// InFlight are requests now, by upstream.
	InFlight map[string]int `json:"in_flight"`
	// Sent are attempts; each is in flight, Finished, Failed or Canceled.
	Sent     uint64 `json:"sent"`
	Finished uint64 `json:"finished"`
	Failed   uint64 `json:"failed"`
	Canceled uint64 `json:"canceled"`
	// NoTarget counts choices without an available upstream, Unread requests
	// with a body that was too long, or exceeded the budget, to be read for its
	// prompt.
	NoTarget uint64 `json:"no_target"`
	Unread   uint64 `json:"unread"`
	// CachedBytes of LengthBytes were predicted to be cached at the chosen upstreams.
	CachedBytes uint64 `json:"cached_bytes"`
	LengthBytes uint64 `json:"length_bytes"`
}

func status() []Status {
	shared := make(map[any]*state)
	states.Range(func(key, v any) bool {
		if s, ok := v.(*state); ok {
			shared[key] = s
		}
		return true
	})
	all := make([]Status, 0, len(shared))
	for key, s := range shared {
		policies, _ := states.References(key) // not within Range, which holds its lock
		all = append(all, Status{
			Strategy:    s.strategy,
			Policies:    policies,
			InFlight:    s.fleet.inFlight(),
			Sent:        s.sent.Load(),
			Finished:    s.finished.Load(),
			Failed:      s.failed.Load(),
			Canceled:    s.canceled.Load(),
			NoTarget:    s.noTarget.Load(),
			Unread:      s.unread.Load(),
			CachedBytes: s.cached.Load(),
			LengthBytes: s.length.Load(),
		})
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Strategy, b.Strategy) })
	return all
}

// adminAPI is the admin endpoint.
type adminAPI struct{}

// CaddyModule names the module.
func (*adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.warmroute",
		New: func() caddy.Module { return new(adminAPI) },
	}
}

// Routes returns its path.
func (*adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{
		Pattern: "/warmroute/status",
		Handler: caddy.AdminHandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			if r.Method != http.MethodGet {
				return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("only GET")}
			}
			w.Header().Set("Content-Type", "application/json")
			return json.NewEncoder(w).Encode(status())
		}),
	}}
}

var _ caddy.AdminRouter = (*adminAPI)(nil)
