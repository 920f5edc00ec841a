package vllmtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Faults are the faults of a replica. The zero Faults is a healthy one. They are
// checked, and Next counts, when a request arrives; the order in which they
// apply is that of the fields.
type Faults struct {
	// Next limits the faults to that many further requests, then they end; 0: until
	// they are changed.
	Next int
	// Probes applies them to /health, /metrics and /v1/models too. Without it
	// these answer as long as the socket does.
	Probes bool

	// Refuse closes the listening socket, so that connecting fails at once. Idle
	// connections are closed, requests in flight go on. With Next, which a closed
	// socket could not count, the socket stays open and the connections on which
	// these requests come are reset.
	Refuse bool
	// Delay is the time before a request is looked at.
	Delay time.Duration
	// Hang reads the request and never answers: until the client leaves or the
	// replica is closed or restarted.
	Hang bool
	// Asleep is an engine that sleeps, as vLLM after a POST to /sleep: the metrics page says so, with or without
	// Probes, what nobody uses of the cache is lost, and a request waits until these faults are replaced.
	Asleep bool
	// Poison limits Status to the requests with this text in their body; "": all of them. It needs Status.
	Poison string
	// Status answers with this HTTP status (200 to 599) and an error body.
	Status int
	// Body is sent with Status in place of the error: an event stream if it begins with "data:", a page if it begins
	// with "<", otherwise JSON. It needs Status.
	Body string
	// RetryAfter is sent with Status, in whole seconds rounded up.
	RetryAfter time.Duration
	// Slow multiplies the time of every step in which one of the requests takes
	// part, and an Instant replica's Delay; 0 is 1.
	Slow float64
	// CutAfter breaks the connection after that many pieces of text, of one token
	// each, have been streamed, if the reply has so many, and in the midst of a
	// reply that is not streamed; 0: never.
	CutAfter int

	// HangMetrics and GarbageMetrics are about the metrics page alone, with or
	// without Probes, and Next does not count them: it is never answered, or is no
	// metrics page.
	HangMetrics, GarbageMetrics bool
}

func (f Faults) check() error {
	switch {
	case f.Next < 0:
		return fmt.Errorf("vllmtest: Faults.Next: %d is negative", f.Next)
	case f.Delay < 0:
		return fmt.Errorf("vllmtest: Faults.Delay: %v is negative", f.Delay)
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("vllmtest: Faults.Status: %d is not in 200..599", f.Status)
	case f.Body != "" && f.Status == 0:
		return fmt.Errorf("vllmtest: Faults.Body: needs Status")
	case f.Poison != "" && f.Status == 0:
		return fmt.Errorf("vllmtest: Faults.Poison: needs Status")
	case f.RetryAfter < 0:
		return fmt.Errorf("vllmtest: Faults.RetryAfter: %v is negative", f.RetryAfter)
	case f.RetryAfter > 0 && f.Status == 0:
		return fmt.Errorf("vllmtest: Faults.RetryAfter: needs Status")
	case f.Slow < 0 || math.IsNaN(f.Slow) || f.Slow > 1e6:
		return fmt.Errorf("vllmtest: Faults.Slow: %v is not in 0..1e6", f.Slow)
	case f.CutAfter < 0:
		return fmt.Errorf("vllmtest: Faults.CutAfter: %d is negative", f.CutAfter)
	}
	return nil
}

// SetFaults replaces the faults, from the next request on; SetFaults(Faults{})
// heals the replica. An error is a field that makes no sense, with nothing
// changed, or a listening socket that could not be opened again after Refuse
// (another process has the port now). It is safe for concurrent use.
func (s *Server) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return err
	}
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.closed {
		return errClosed
	}
	refuse := f.Refuse && f.Next == 0
	if refuse {
		s.unlisten()
	} else if err := s.listen(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.faultsLeft = f, f.Next
	if s.woken != nil {
		close(s.woken)
		s.woken = nil
	}
	if f.Asleep {
		s.woken = make(chan struct{})
		for _, e := range s.gen.engines {
			e.loseCache()
		}
	}
	return nil
}

// awake waits until the replica does not sleep. It returns false if the client or the generation ended before.
func (s *Server) awake(ctx context.Context, g *generation) bool {
	s.mu.Lock()
	woken := s.woken
	s.mu.Unlock()
	if woken == nil {
		return true
	}
	select {
	case <-woken:
		return true
	case <-ctx.Done():
	case <-g.ended:
	}
	return false
}

// fault returns the faults of one request.
func (s *Server) fault(probe bool) Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.faults
	page := Faults{HangMetrics: f.HangMetrics, GarbageMetrics: f.GarbageMetrics}
	if f.Asleep && probe {
		f.Asleep = false // the page says it
	}
	if f == page || probe && !f.Probes {
		return Faults{}
	}
	if f.Next > 0 {
		if s.faultsLeft--; s.faultsLeft == 0 {
			s.faults = page
		}
	}
	s.faulted++
	return f
}

// spoilMetrics applies the faults of the metrics page. It returns false if the
// request has been dealt with.
func (s *Server) spoilMetrics(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	f, g := s.faults, s.gen
	if f.HangMetrics || f.GarbageMetrics {
		s.faulted++
	}
	s.mu.Unlock()
	switch {
	case f.HangMetrics:
		select {
		case <-r.Context().Done():
		case <-g.ended:
		}
		panic(http.ErrAbortHandler)
	case f.GarbageMetrics:
		_, _ = io.WriteString(w, "\x00\xff{{{\nvllm:num_requests_running} NaN NaN\n<html>")
		return false
	}
	return true
}

// spoil applies the faults that do not depend on the request. It returns false if
// the request has been dealt with.
func (s *Server) spoil(w http.ResponseWriter, r *http.Request, g *generation, f Faults) bool {
	if f.Refuse {
		reset(w)
	}
	if f.Delay > 0 && !g.sleep(r.Context(), f.Delay) {
		panic(http.ErrAbortHandler)
	}
	if f.Hang {
		// The server sees the client leave only after the body has been read.
		discard(r.Body, s.cfg.MaxBody)
		select {
		case <-r.Context().Done():
		case <-g.ended:
		}
		panic(http.ErrAbortHandler)
	}
	if f.Asleep {
		// The server sees the client leave only after the body has been read.
		body, err := s.readBody(w, r, nil)
		if err != nil {
			s.refuse(w, r, err)
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !s.awake(r.Context(), g) {
			panic(http.ErrAbortHandler)
		}
	}
	if f.Status != 0 {
		if f.Poison != "" {
			body, err := s.readBody(w, r, nil)
			if err != nil {
				s.refuse(w, r, err)
				return false
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte(f.Poison)) {
				return true
			}
		}
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((f.RetryAfter+time.Second-1)/time.Second), 10))
		}
		if f.Body == "" {
			writeError(w, r, f.Status, "a fault was asked for")
			return false
		}
		discard(r.Body, s.cfg.MaxBody)
		kind := "application/json"
		switch {
		case strings.HasPrefix(f.Body, "data:"):
			kind = "text/event-stream"
		case strings.HasPrefix(f.Body, "<"):
			kind = "text/html; charset=utf-8"
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
		return false
	}
	return true
}

// reset ends the connection of w so that its client sees a reset.
func reset(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if t, ok := c.(interface{ SetLinger(int) error }); ok {
			_ = t.SetLinger(0) // without it the client would see an orderly end
		}
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}
