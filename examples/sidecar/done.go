package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

type doneRequest struct {
	Lease        string `json:"lease"`
	Stage        string `json:"stage"`
	Status       int    `json:"status"`
	Error        string `json:"error"`
	PromptTokens int    `json:"prompt_tokens"`
	CachedTokens int    `json:"cached_tokens"`
	// CachedReported says that the engine reported CachedTokens: then 0 means that nothing was cached.
	CachedReported bool `json:"cached_reported"`
	OutputTokens   int  `json:"output_tokens"`
	// Reply is the engine's reply as it came, an object or an event stream.
	Reply string `json:"reply"`
	// Made are the ids of state that the reply made at the target. A Reply of which the beginning was sent with stage
	// first_token has them too.
	Made         names `json:"made,omitempty"`
	RetryAfterMS int64 `json:"retry_after_ms"`
	// NotSent, TimedOut and Lacking say more of a failure, as router.Outcome and
	// router.ErrAttemptTimeout have it.
	NotSent  bool `json:"not_sent"`
	TimedOut bool `json:"timed_out"`
	Lacking  bool `json:"lacking"`
	Retry    bool `json:"retry"`
}

type doneReply struct {
	Settled bool       `json:"settled"`
	Next    *pickReply `json:"next,omitempty"`
	// Why is the reason if there is no Next although one was requested.
	Why string `json:"why,omitempty"`
}

// stages are the values that callers may send; "" is derived.
var stages = map[string]router.Stage{
	"": 0, "first_token": router.FirstToken, "finished": router.Finished, "failed": router.Failed,
	"canceled": router.Canceled,
}

// callerError is an error that a caller reported.
type callerError string

func (e callerError) Error() string { return string(e) }

// maxMade bounds doneRequest.Made.
const maxMade = 64

// maxRetryAfter bounds the Retry-After of an engine: a day.
const maxRetryAfter = 24 * 60 * 60 * 1000

func (in *doneRequest) outcome() (router.Outcome, error) {
	stage, ok := stages[in.Stage]
	switch {
	case !ok:
		return router.Outcome{}, bad(fmt.Sprintf("no stage has the name %q", in.Stage))
	case in.Status != 0 && (in.Status < 100 || in.Status > 599):
		return router.Outcome{}, bad("status is no HTTP status")
	case min(in.PromptTokens, in.CachedTokens, in.OutputTokens) < 0:
		return router.Outcome{}, bad("a number of tokens is negative")
	case len(in.Made) > maxMade:
		return router.Outcome{}, bad(fmt.Sprintf("made has more than %d ids", maxMade))
	case in.RetryAfterMS < 0 || in.RetryAfterMS > maxRetryAfter:
		return router.Outcome{}, bad(fmt.Sprintf("retry_after_ms is not within 0 and %d", maxRetryAfter))
	}
	var r *prompt.Reply // nil: the caller may not have sent it
	if in.Reply != "" {
		r = &prompt.Reply{Opaque: true}
		io.WriteString(r, in.Reply)
	}
	o := r.Outcome(in.Status, nil)
	if stage != 0 {
		o.Stage = stage
	}
	if stage == router.FirstToken && r != nil {
		o.Made = r.Made() // the reply has only begun
	}
	o.RetryAfter = time.Duration(in.RetryAfterMS) * time.Millisecond
	// The caller's own numbers go before those of the reply.
	o.PromptTokens = cmp.Or(in.PromptTokens, o.PromptTokens)
	o.CachedTokens = cmp.Or(in.CachedTokens, o.CachedTokens)
	o.OutputTokens = cmp.Or(in.OutputTokens, o.OutputTokens)
	o.CachedReported = o.CachedReported || in.CachedReported
	o.Made = append(o.Made, in.Made...)
	o.NotSent, o.Lacking = in.NotSent, in.Lacking
	switch {
	case in.TimedOut && in.Error != "":
		o.Err = fmt.Errorf("%w: %w", router.ErrAttemptTimeout, callerError(in.Error))
	case in.TimedOut:
		o.Err = router.ErrAttemptTimeout
	case in.Error != "":
		o.Err = callerError(in.Error)
	}
	return o, nil
}

func (s *Service) done(r *http.Request) (any, error) {
	var in doneRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	o, err := in.outcome()
	if err != nil {
		return nil, err
	}
	if stages[in.Stage] == router.FirstToken {
		h, err := s.leases.get(in.Lease)
		if err != nil {
			return nil, err
		}
		h.lease.Made(o.Made...)
		h.lease.FirstToken()
		return &doneReply{}, nil
	}
	if in.Retry {
		return s.retry(r, in.Lease, o)
	}
	if err := s.leases.end(in.Lease, o); err != nil {
		return nil, err
	}
	return &doneReply{Settled: true}, nil
}

// retry settles a lease and waits for another one, with the same deadline.
func (s *Service) retry(r *http.Request, id string, o router.Outcome) (any, error) {
	h, err := s.leases.take(id)
	if err != nil {
		return nil, err
	}
	// Retry has one context for the wait, which this request's end ends, and for
	// the lease, which it does not.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(r.Context(), cancel)
	next, err := h.lease.Retry(ctx, o)
	h.cancel()
	if next == nil || !stop() { // nobody would know of it
		if next != nil {
			next.Done(router.Outcome{Stage: router.Canceled})
		}
		cancel()
		s.leases.release(h.bytes)
		return &doneReply{Settled: true, Why: fmt.Sprint(err)}, nil
	}
	nextID, err := s.leases.keep(next, cancel, h.deadline)
	if err != nil {
		return nil, err
	}
	return &doneReply{Settled: true, Next: picked(nextID, next, h.deadline)}, nil
}

func (s *Service) health(w http.ResponseWriter, _ *http.Request) {
	open, expired := s.leases.counts()
	ready := 0
	for _, m := range s.cfg.Fleet.Snapshot() {
		if m.Target.State == router.Ready {
			ready++
		}
	}
	reply(w, http.StatusOK, map[string]any{"status": "ok", "ready": ready, "leases": open, "expired": expired})
}

func (s *Service) targets(w http.ResponseWriter, _ *http.Request) {
	type target struct {
		ID        string `json:"id"`
		State     string `json:"state"`
		InFlight  int    `json:"in_flight"`
		Queued    int    `json:"queued"`
		Prefill   int    `json:"prefill"`
		Failures  int    `json:"failures"`
		ReadyInMS int64  `json:"ready_in_ms"`
	}
	all := []target{}
	for _, m := range s.cfg.Fleet.Snapshot() {
		l := m.Target.Load
		all = append(all, target{m.Target.ID, m.Target.State.String(), l.InFlight, l.Queued, l.Prefill, m.Failures,
			m.ReadyIn.Milliseconds()})
	}
	reply(w, http.StatusOK, map[string]any{"targets": all})
}

func (s *Service) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(openapi)
}
