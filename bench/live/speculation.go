package main

import (
	"context"
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

// speculate plays a wave on engines that speculate, and judges the predictions.
func (s *study) speculate(ctx context.Context, config string) error {
	if err := s.restart(ctx, "model", s.fleet.blocks, config); err != nil {
		return err
	}
	if err := s.fresh(ctx, precise); err != nil {
		return err
	}
	for i := range 2 {
		w := newWave(uint64(21+i), s.per)
		if err := s.play(ctx, phaseSpec, w, w.left()); err != nil {
			return err
		}
	}
	var err error
	s.drafts, err = s.fleet.drafts(ctx)
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
