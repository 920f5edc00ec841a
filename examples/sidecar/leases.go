package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/membudget"
)

// errDeadline is the error of the outcome of a lease that nobody ended.
var errDeadline = errors.New("sidecar: the lease's deadline passed before its caller ended it")

// leases are those that callers hold, by the names that they have for them. Each
// ends once: by its caller, by its deadline, or by close.
type leases struct {
	log      *slog.Logger
	max      int
	maxBytes int64
	memory   *membudget.Account

	mu      sync.Mutex
	open    map[string]*held
	count   int   // of open, and of those on their way there
	bytes   int64 // that their prompts take
	expired int   // since the start
	past    map[string]bool
	ring    []string // of past, which are the last that expired
	at      int
	closed  bool
}

type held struct {
	lease    *router.Lease
	deadline time.Duration
	timer    *time.Timer
	cancel   context.CancelFunc // of the lease's context
	bytes    int64              // that are reserved for it
}

// sizeOf returns the bytes that a lease with p takes: its text, once more in the memory of the strategy, and its ids.
func sizeOf(p router.Prompt) int64 { return 2*int64(len(p.Text)) + 8*int64(len(p.Tokens)) + 4<<10 }

// rememberExpired is the number of expired leases that are distinguished from
// unknown ones.
const rememberExpired = 4096

func (s *leases) init(max int, maxBytes int64, memory *membudget.Account, log *slog.Logger) {
	s.max, s.maxBytes, s.memory, s.log = max, maxBytes, memory, log
	s.open = make(map[string]*held)
	s.past = make(map[string]bool)
	s.ring = make([]string, rememberExpired)
}

var (
	errClosing = unavailable("closing", "the service is closing", 0)
	errFull    = unavailable("too_many_leases", "too many leases are open", 0)
	errLarge   = unavailable("too_many_bytes", "the prompts of open leases take too many bytes", 0)
)

// reserve counts a future lease of n bytes if the bounds allow it; release reverts it.
func (s *leases) reserve(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosing
	case s.count >= s.max:
		return errFull
	case s.bytes+n > s.maxBytes:
		return errLarge
	}
	if err := s.memory.Reserve(n); err != nil {
		return err
	}
	s.count++
	s.bytes += n
	return nil
}

func (s *leases) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	s.bytes -= n
	s.memory.Release(n)
}

// keep stores a lease with a reserved place, and names it. cancel is called when
// it has ended.
func (s *leases) keep(l *router.Lease, cancel context.CancelFunc, deadline time.Duration) (string, error) {
	id := rand.Text()
	s.mu.Lock()
	if s.closed {
		s.count--
		s.bytes -= sizeOf(l.Decision().Prompt)
		s.memory.Release(sizeOf(l.Decision().Prompt))
		s.mu.Unlock()
		l.Done(router.Outcome{Stage: router.Canceled})
		cancel()
		return "", errClosing
	}
	s.open[id] = &held{lease: l, deadline: deadline, cancel: cancel, bytes: sizeOf(l.Decision().Prompt),
		timer: time.AfterFunc(deadline, func() { s.expire(id) })}
	s.mu.Unlock()
	return id, nil
}

// get returns an open lease.
func (s *leases) get(id string) (*held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(id)
}

func (s *leases) find(id string) (*held, error) {
	if h := s.open[id]; h != nil {
		return h, nil
	}
	if s.past[id] {
		return nil, &failure{status: http.StatusGone, code: "lease_expired",
			message: "the lease's deadline passed before it was ended"}
	}
	return nil, &failure{status: http.StatusNotFound, code: "no_such_lease", message: "no such lease is open"}
}

// take removes an open lease. Its place stays reserved until release.
func (s *leases) take(id string) (*held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(id)
	if err == nil {
		delete(s.open, id)
		h.timer.Stop()
	}
	return h, err
}

// end settles a lease with o.
func (s *leases) end(id string, o router.Outcome) error {
	h, err := s.take(id)
	if err == nil {
		h.settle(o)
		s.release(h.bytes)
	}
	return err
}

func (h *held) settle(o router.Outcome) {
	h.lease.Done(o)
	h.cancel()
}

// expire ends a lease after its deadline.
func (s *leases) expire(id string) {
	s.mu.Lock()
	h := s.open[id]
	if h == nil { // its caller was just in time
		s.mu.Unlock()
		return
	}
	delete(s.open, id)
	delete(s.past, s.ring[s.at])
	s.ring[s.at], s.past[id] = id, true
	s.at = (s.at + 1) % len(s.ring)
	s.expired++
	s.mu.Unlock()

	h.settle(router.Outcome{Stage: router.Canceled, Err: errDeadline})
	s.release(h.bytes)
	s.log.Warn("a lease was not ended by its caller", "lease", id, "target", h.lease.Decision().Target.ID, "deadline",
		h.deadline)
}

// counts returns how many leases are open, and how many have expired.
func (s *leases) counts() (open, expired int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.expired
}

func (s *leases) close() {
	s.mu.Lock()
	all := s.open
	s.open, s.closed = nil, true
	s.count -= len(all)
	for _, h := range all {
		s.bytes -= h.bytes
		s.memory.Release(h.bytes)
	}
	s.mu.Unlock()
	for _, h := range all {
		h.timer.Stop()
		h.settle(router.Outcome{Stage: router.Canceled})
	}
}
