package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
)

// livePage shows a service on an address of its own. A nil one shows nothing.
type livePage struct {
	*debugui.Page
	parser prompt.Parser // for prompts that are tried
	counts http.Handler  // the page of counts; nil: none
	// name returns a route's name on the page; nil: as in the file.
	name  func(route string) string
	pprof bool   // serve profiles too
	admin *admin // nil: there is none
}

func (l *livePage) named(route string) string {
	if l.name == nil {
		return route
	}
	return l.name(route)
}

// options adds the page's hooks to o.
func (l *livePage) options(o config.Options) config.Options {
	if l == nil {
		return o
	}
	all := file.Strategies()
	for name, s := range o.Strategies {
		all[name] = s
	}
	for name, s := range all {
		build := s.New
		s.New = func(cfg any) (router.Strategy, error) {
			made, err := build(cfg)
			if err != nil {
				return nil, err
			}
			return l.Strategy(made), nil
		}
		all[name] = s
	}
	o.Strategies = all
	o.View = l.ViewTrace(o.View)
	o.Trace = func(route string) router.Trace { return l.Trace(l.named(route), router.Trace{}) }
	return o
}

// watch shows the routes that s has now.
func (l *livePage) watch(s *service) {
	if l == nil {
		return
	}
	f := s.gateway.File()
	for i := range slices.Backward(f.Routes) { // so that the page begins with the first
		r := &f.Routes[i]
		w := debugui.Route{
			Name: l.named(r.Model), Strategy: r.Strategy, Router: shownRouter{s, r.Model}, View: shownFleet(s, r),
			Streams: s.shownStreams, Parse: l.parser.FromRequest, Memory: s.memory,
		}
		if x := s.gateway.Index(); x != nil {
			w.Index = x
		}
		if q := s.gateway.Queue(); q != nil {
			w.Queue = q
		}
		if n := s.sharing.node; n != nil {
			w.Share = n
		}
		if split := s.splitOf(r.Model); split != nil {
			w.Disagg = split
		}
		if err := l.Watch(w); err != nil {
			s.log.Warn("live page", "err", err)
		}
	}
}

// shownRouter ranks prompts by the route that requests like them would get, if it
// is this one.
type shownRouter struct {
	s     *service
	route string
}

func (r shownRouter) Explain(ctx context.Context, p router.Prompt) ([]router.Candidate, error) {
	m, ok := r.s.gateway.Route(p.Model)
	if !ok || m.Route != r.route {
		if m, ok = r.s.gateway.Route(r.route); !ok {
			return nil, errors.New("the route is gone")
		}
		m.Model, m.Adapter = p.Model, "" // as a request of this model would be ranked here
	}
	return m.Router.Explain(ctx, m.Prompt(p))
}

// fleetView is a function as a debugui.View.
type fleetView func() []loadview.Status

func (f fleetView) Snapshot() []loadview.Status { return f() }

// shownFleet returns the members that a route may send to.
func shownFleet(s *service, r *file.Route) debugui.View {
	may := make(map[string]bool)
	for _, t := range r.Targets {
		may[t.Provider] = true
	}
	return fleetView(func() []loadview.Status {
		return slices.DeleteFunc(s.gateway.View().Snapshot(), func(m loadview.Status) bool {
			t, ok := m.Target.Ref.(*config.Target)
			return ok && !may[t.Provider]
		})
	})
}

// shownStreams returns the event streams by target.
func (s *service) shownStreams() []debugui.Stream {
	index := s.gateway.Index()
	if index == nil {
		return nil
	}
	var out []debugui.Stream
	for id, sub := range s.streams.all() {
		at, _ := index.Target(id)
		c := sub.Stats()
		out = append(out, debugui.Stream{
			Target: id, State: sub.State(sub.id).String(), Trusted: at.Trusted,
			Messages: c.Messages, Gaps: c.Gaps, Replays: c.Replays, Malformed: c.Malformed, Overflows: c.Overflows,
		})
	}
	slices.SortFunc(out, func(a, b debugui.Stream) int { return strings.Compare(a.Target, b.Target) })
	return out
}

// handler returns the page, and all else that the debug address has.
func (l *livePage) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", l)
	if l.counts != nil {
		mux.Handle(debugPath, l.Guard(l.counts))
	}
	if l.admin != nil {
		mux.Handle(adminPath, l.Guard(l.admin.handler()))
	}
	if l.pprof {
		for path, f := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.Handle("/debug/pprof/"+path, l.Guard(f))
		}
	}
	return mux
}

// serve serves the page until stop is called, which waits for the end.
func (l *livePage) serve(address string, log *slog.Logger) (url string, stop func(), err error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, err
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		log.Warn("the live page has no login and can be reached from other machines", "address", ln.Addr().String())
	}
	srv := &http.Server{
		Handler: l.handler(), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(ln) // Close is all that ends it
	}()
	return "http://" + ln.Addr().String() + "/", func() {
		_ = srv.Close()
		<-ended
	}, nil
}
