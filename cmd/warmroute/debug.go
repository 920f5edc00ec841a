package main

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// debugPath answers with a page of counts, which depend on the prompts of all clients: on the address of -debug if
// there is one, and otherwise on the clients' address, unless they do not trust each other (-silent).
const debugPath = "/debug/warmroute"

// page is the content of that page.
type page struct {
	// Precise is all routes of precise_cache_aware together, and the streams.
	Precise *preciseStats `json:",omitempty"`
	// Tokens is the token source, if there is one; with several, by route.
	Tokens        *tokenStats            `json:",omitempty"`
	TokensByRoute map[string]*tokenStats `json:",omitempty"`
	LMCache       map[string]cacheStats  `json:",omitempty"`
}

// preciseStats are the counts of precise mode on the page and in the last log line.
type preciseStats struct {
	Judged, Mismatched, MismatchedPresumed int64
	PredictedTooMuch, PredictedTooLittle   int64
	Restarts                               int64
	Index                                  kvindex.Stats
	Targets                                map[string]streamStats
}

type streamStats struct {
	State   string
	Trusted bool
	Blocks  int
	Stream  zmqsub.Stats
}

// cacheStats is the last reading of one LMCache. Free is null if there is none.
type cacheStats struct {
	State    string
	Free     *float64
	AgeSecs  float64
	Failures int
	Error    string `json:",omitempty"`
}

// counts reports whether there is anything that the page could say.
func (s *service) counts() bool {
	f := s.gateway.File()
	for i := range f.Routes {
		r := &f.Routes[i]
		if r.Strategy == precisecacheaware.Name || r.TokenSource != nil && r.TokenSource.Kind != file.TokensFromHeader {
			return true
		}
	}
	return s.gateway.Index() != nil || len(s.gateway.LMCache().Snapshot()) > 0
}

func (s *service) page() page {
	v := page{Precise: s.precise(), TokensByRoute: make(map[string]*tokenStats), LMCache: make(map[string]cacheStats)}
	for name, st := range *s.routes.Load() {
		if st.tokens != nil {
			v.TokensByRoute[name] = st.tokens.stats()
		}
	}
	if len(v.TokensByRoute) == 1 {
		for _, t := range v.TokensByRoute {
			v.Tokens = t
		}
		v.TokensByRoute = nil
	}
	for _, c := range s.gateway.LMCache().Snapshot() {
		e := cacheStats{State: c.State.String(), AgeSecs: c.Age.Seconds(), Failures: c.Failures}
		if !c.State.Neutral() {
			e.Free = &c.Free
		}
		if c.Err != nil {
			e.Error = c.Err.Error()
		}
		v.LMCache[c.ID] = e
	}
	return v
}

// precise returns the counts of all routes of precise_cache_aware, nil if there is
// neither one nor an index.
func (s *service) precise() *preciseStats {
	index := s.gateway.Index()
	st := &preciseStats{
		PredictedTooMuch: s.wrong.over.Load(), PredictedTooLittle: s.wrong.under.Load(),
		Restarts: s.streams.restarts.Load(), Targets: make(map[string]streamStats),
	}
	found := index != nil
	for _, r := range s.gateway.File().Routes {
		if p, ok := debugui.Unwrap(s.gateway.Strategy(r.Model)).(*precisecacheaware.Strategy); ok {
			c := p.Stats()
			st.Judged += c.Judged
			st.Mismatched += c.Mismatched
			st.MismatchedPresumed += c.MismatchedPresumed
			found = true
		}
	}
	if !found {
		return nil
	}
	if index != nil {
		st.Index = index.Stats()
		for id, sub := range s.streams.all() {
			t, _ := index.Target(id)
			st.Targets[id] = streamStats{sub.State(sub.id).String(), t.Trusted, t.Blocks, sub.Stats()}
		}
	}
	return st
}

// serveCounts answers on the address of -debug.
func (s *service) serveCounts(w http.ResponseWriter, r *http.Request) {
	if !s.counts() {
		http.NotFound(w, r)
		return
	}
	serveDebug(w, r, s.page())
}

func serveDebug(w http.ResponseWriter, r *http.Request, v page) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client may be gone
}

// logPage writes the counts that matter when the gateway ends.
func logPage(log *slog.Logger, v page) {
	if s := v.Precise; s != nil {
		log.Info("predictions", "judged", s.Judged, "mismatched", s.Mismatched, "presumed", s.MismatchedPresumed,
			"too_much", s.PredictedTooMuch, "too_little", s.PredictedTooLittle, "restarts", s.Restarts)
	}
	logTokens(log, "", v.Tokens)
	for route, s := range v.TokensByRoute {
		logTokens(log, route, s)
	}
}

func logTokens(log *slog.Logger, route string, s *tokenStats) {
	if s == nil {
		return
	}
	if route != "" {
		log = log.With("route", route)
	}
	log.Info("tokens", "source", s.Source, "given", s.Given, "whole", s.Whole, "partial", s.Partial, "none", s.None,
		"miscounted", s.Miscounted, "contradicted", s.Memo.Contradicted)
}
