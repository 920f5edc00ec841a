package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// restart stops the gateway and starts other engines at the same addresses.
func (s *study) restart(ctx context.Context, model string, blocks int, speculation string) error {
	f := s.fleet
	if err := errors.Join(s.stopGateway(ctx), f.stopEngines()); err != nil {
		return err
	}
	f.model, f.cache, f.speculation = model, blocks, speculation
	for _, e := range f.engines {
		s.started[e.url()] = time.Now()
	}
	say("starting engines with %d blocks, speculation %q", blocks, speculation)
	return f.startEngines(ctx)
}

// Speculations of the leg with them.
const (
	draftModel = "model-draft"

	ngram = `{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_min":1,"prompt_lookup_max":4}`
	eagle = `{"method":"eagle","model":"` + draftModel + `","num_speculative_tokens":2}`
)

// learning is how many of an engine's replies the gateway may take to learn that it
// computes a block again.
const learning = 3

// methodOf returns the method of a speculation, empty if there is none.
func methodOf(config string) string {
	var c struct{ Method string }
	if json.Unmarshal([]byte(config), &c) != nil {
		return ""
	}
	return c.Method
}

// recomputed reports whether a missed prediction is one of the first of an engine that
// computes the last block again that it has: the events, which cannot say so, say what
// the gateway predicted.
func (s *study) recomputed(x *exchange, c cause) bool {
	method := methodOf(s.fleet.speculation)
	if method == "" || method == "ngram" || c != causeUnknown || x.predicted-x.reported != blockSize {
		return false
	}
	n := 0
	for _, m := range s.misses {
		if m.x.target == x.target && m.x.phase == x.phase && m.cause == causeLearned {
			n++
		}
	}
	return n < learning
}

// speculate plays waves on engines that speculate, and judges the predictions.
func (s *study) speculate(ctx context.Context, seed uint64, config string) error {
	if err := s.restart(ctx, "model", s.fleet.blocks, config); err != nil {
		return err
	}
	if err := s.fresh(ctx, precise); err != nil {
		return err
	}
	for i := range uint64(2) {
		w := newWave(seed+i, s.per)
		if err := s.play(ctx, phaseSpec+methodOf(config), w, w.left()); err != nil {
			return err
		}
	}
	d, err := s.fleet.drafts(ctx)
	s.drafts = append(s.drafts, d)
	return err
}

// drafts are the tokens that engines have speculated on.
type drafts struct{ drafted, accepted float64 }

// drafts adds up what the engines count of their speculation.
func (f *fleet) drafts(ctx context.Context) (drafts, error) {
	var d drafts
	for _, e := range f.engines {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url()+"/metrics", nil)
		if err != nil {
			return d, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return d, err
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
		resp.Body.Close()
		if err != nil {
			return d, err
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			name, value, _ := strings.Cut(line, "} ")
			n, err := strconv.ParseFloat(value, 64)
			switch {
			case err != nil:
			case strings.HasPrefix(name, "vllm:spec_decode_num_draft_tokens_total{"):
				d.drafted += n
			case strings.HasPrefix(name, "vllm:spec_decode_num_accepted_tokens_total{"):
				d.accepted += n
			}
		}
	}
	return d, nil
}
