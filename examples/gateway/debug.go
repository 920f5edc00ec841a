package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
)

// debugPath answers with a page of what precise_cache_aware has counted.
const debugPath = "/debug/warmroute"

// page is what that says.
type page struct {
	Precise *preciseStats `json:",omitempty"`
	Tokens  *tokenStats   `json:",omitempty"`
}

func makePage(p *precise, t *tokenSource) page {
	var v page
	if p != nil {
		s := p.stats()
		v.Precise = &s
	}
	v.Tokens = t.stats()
	return v
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
	if s := v.Tokens; s != nil {
		log.Info("tokens", "source", s.Source, "given", s.Given, "whole", s.Whole, "partial", s.Partial, "none", s.None,
			"miscounted", s.Miscounted, "contradicted", s.Memo.Contradicted)
	}
}
