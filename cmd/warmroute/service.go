package main

import (
	"context"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// service has the routers of a file and the other state of the gateway.
type service struct {
	gateway *config.Gateway
	log     *slog.Logger
	began   time.Time
	streams streams
	wrong   mismatches
	live    *livePage // nil: there is none
	metrics *metrics
	sharing sharing
	memory  *membudget.Budget

	maxRequests int   // at once; 0: the soft limit of memory is not set
	soft        int64 // that limit

	transport http.RoundTripper // the Handler's

	refuse atomic.Pointer[reqbody.Refused] // members of requests

	mu     sync.Mutex // one update at a time; guards shown
	shown  *file.File // the one with the routes in the metrics
	routes atomic.Pointer[map[string]*routeState]
}

// routeState is the gateway's own state of one route.
type routeState struct {
	renames bool          // a target may be sent another model than the request names
	attempt time.Duration // bounds an attempt until the first byte of its reply; 0: no bound
	tokens  *tokenSource  // nil: none

	split       *disagg.Splitter // nil: no provider has a role
	splitConfig disagg.Config    // its settings
}

// newService returns a service that has to be given a file.
func newService(log *slog.Logger) (*service, error) {
	s := &service{log: log, began: time.Now()}
	var err error
	if s.metrics, err = newMetrics(); err != nil {
		return nil, err
	}
	if s.memory, err = membudget.New(membudget.Config{}); err != nil {
		return nil, err
	}
	s.streams.metrics, s.streams.memory = s.metrics, s.memory.Account(membudget.Events)
	s.streams.log = log
	s.streams.forget = s.forget
	return s, nil
}

// options returns the options with which files are read and gateways built.
func (s *service) options() config.Options {
	precise := file.Strategies()[precisecacheaware.Name]
	build := precise.New
	precise.New = func(cfg any) (router.Strategy, error) {
		if c, ok := cfg.(*precisecacheaware.Config); ok {
			told := *c
			told.Mismatch = s.mismatch
			cfg = &told
		}
		return build(cfg)
	}
	return s.live.options(config.Options{
		Strategies: map[string]file.Strategy{precisecacheaware.Name: precise},
		Subscribe:  s.streams.subscribe,
		Class:      classOf,
		QueueTrace: s.metrics.Queue("", admission.Trace{}),
		Share:      s.share,
		View:       s.logChanges(s.metrics.fleet()),
		LMCache:    s.metrics.lmcache(),
		Logger:     zapTo(s.log),
		Reloaded: func(_ *file.File, err error) {
			if err == nil {
				s.update()
			}
		},
	})
}

// build makes the gateway of a file that options has read.
func (s *service) build(f *file.File, o config.Options) error {
	next := o.Trace
	o.TraceRoute = func(r *file.Route) router.Trace {
		if next == nil {
			return s.metrics.route(r, router.Trace{})
		}
		return s.metrics.route(r, next(r.Model))
	}
	g, err := config.Build(f, o)
	if err != nil {
		return err
	}
	s.gateway = g
	return s.update()
}

// policy returns the egress policy of the file in place.
func (s *service) policy() egress.Policy { return s.gateway.File().Policy() }

// update brings the routes' states up to the file in place. Learned token ids stay if the
// source does.
func (s *service) update() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.routes.Load()
	fresh := make(map[string]*routeState)
	f := s.gateway.File()
	s.refuse.Store(refusedBy(f))
	failed := s.memory.Set(f.Memory()) // the file was checked
	s.softLimit()
	for i := range f.Routes {
		r := &f.Routes[i]
		st := &routeState{renames: len(r.Aliases) > 0, attempt: r.Failover.AttemptTimeout}
		for _, t := range r.Targets {
			st.renames = st.renames || t.Model != ""
		}
		if src := r.TokenSource; src != nil && src.Kind != file.TokensFromHeader {
			g := s.group(r)
			var before *tokenSource
			if old != nil && (*old)[r.Model] != nil {
				before = (*old)[r.Model].tokens
			}
			policy := s.policy()
			if before != nil && reflect.DeepEqual(before.settings, *src) &&
				reflect.DeepEqual(before.policy, policy) && before.group.Load().asks(g) {
				st.tokens = before
			} else {
				var err error
				account := s.memory.Account(membudget.Tokens)
				st.tokens, err = newTokenSource(*src, policy, s.gateway.TLS(), s.gateway.View(), account, s.log)
				if err != nil {
					s.log.Error("no token ids", "route", r.Model, "err", err)
					failed = err
				}
			}
			if st.tokens != nil {
				st.tokens.group.Store(g)
			}
		}
		var was *routeState
		if old != nil {
			was = (*old)[r.Model]
		}
		var err error
		if st.split, st.splitConfig, err = s.splitter(f, r, was); err != nil {
			s.log.Error("prefill and decode are not split", "route", r.Model, "err", err)
			failed = err
		}
		fresh[r.Model] = st
	}
	s.routes.Store(&fresh)
	s.metrics.watch(s, f, s.shown)
	s.shown = f
	s.live.watch(s)
	if old != nil {
		for name, st := range *old {
			if now := fresh[name]; st.tokens != nil && (now == nil || now.tokens != st.tokens) {
				st.tokens.close()
			}
		}
	}
	return failed
}

// refusedBy returns the members that a file refuses.
func refusedBy(f *file.File) *reqbody.Refused {
	names := f.Requests.RefuseMembers
	if !f.Requests.AllowKVTransfer {
		names = append(reqbody.KVTransfer(), names...)
	}
	return reqbody.NewRefused(names...)
}

// refused returns an error if a client must not send the body of r.
func (s *service) refused(r *http.Request, body []byte) error {
	err := s.refuse.Load().Check(body)
	if err == reqbody.ErrEncoding && !isJSON(r.Header.Get("Content-Type")) {
		return nil // an engine does not read it as JSON
	}
	return err
}

// isJSON reports whether an engine may read a body of this Content-Type as JSON.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err != nil || strings.Contains(media, "json") || strings.HasPrefix(media, "text/")
}

// group returns the targets of r that one question about tokens can go to, whichever
// of them it is: those with the first one's name for the model and its key.
func (s *service) group(r *file.Route) *group {
	ranks := make(map[string][]string) // the IDs of a provider
	refs := make(map[string]*config.Target)
	for _, m := range s.gateway.View().Snapshot() {
		t, ok := m.Target.Ref.(*config.Target)
		if !ok {
			continue
		}
		if refs[t.Provider] == nil {
			refs[t.Provider] = t
		}
		// Those on their way out come last, and are of the provider as it was.
		if t.Base == refs[t.Provider].Base {
			ranks[t.Provider] = append(ranks[t.Provider], m.Target.ID)
		}
	}
	g := &group{ids: make(map[string]bool)}
	for _, t := range r.Targets {
		ref := refs[t.Provider]
		if ref == nil {
			continue
		}
		if g.target == nil {
			first := *ref
			first.Model = t.Model
			g.target = &first
		}
		if t.Model != g.target.Model || !sameKey(ref.Header, g.target.Header) {
			continue
		}
		for _, id := range ranks[t.Provider] {
			g.ids[id] = true
		}
	}
	if g.target == nil {
		g.target = new(config.Target)
	}
	return g
}

// state returns the state of a route; during a reload there may be none yet.
func (s *service) state(route string) *routeState {
	if st := (*s.routes.Load())[route]; st != nil {
		return st
	}
	return &routeState{renames: true}
}

// forget is called when a target's engine has started again, maybe with another
// tokenizer.
func (s *service) forget(id string) {
	for _, st := range *s.routes.Load() {
		if st.tokens != nil && st.tokens.group.Load().ids[id] {
			st.tokens.memo.Forget()
		}
	}
	s.gateway.View().Forget(id)
}

// run scrapes, polls, subscribes and, if there is a path, follows the file, until
// ctx is done. Each value of again, which may be nil, reads the file.
func (s *service) run(ctx context.Context, path string, every time.Duration, again <-chan os.Signal) {
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.gateway.Run(ctx) }) // ctx is all that ends it
	wg.Go(func() { s.sharing.run(ctx, s.log) })
	if path != "" && every > 0 {
		wg.Go(func() { _ = s.gateway.Watch(ctx, path, every) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-again:
			_ = s.gateway.ReloadFile(path) // it is logged
		}
	}
	wg.Wait()
}

func (s *service) close() {
	s.sharing.end()
	for _, st := range *s.routes.Load() {
		if st.tokens != nil {
			st.tokens.close()
		}
	}
}

// mismatches count the predictions that did not come true.
type mismatches struct{ over, under atomic.Int64 }

func (s *service) mismatch(id string, predicted, reported int) {
	if predicted > reported {
		s.wrong.over.Add(1)
	} else {
		s.wrong.under.Add(1)
	}
	s.log.Debug("cached tokens", "target", id, "predicted", predicted, "reported", reported)
}
