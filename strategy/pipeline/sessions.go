package pipeline

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/forgetlog"
)

// maxKey bounds the length of a session's key and scope together, in bytes. A
// longer one is not remembered.
const maxKey = 4 << 10

// Sessions remembers which target served a session last. It is bounded: the
// session used least recently goes first. Its methods are safe for concurrent
// use, also by several strategies. It keeps no clock and starts no goroutine.
//
// It is our own list because the libraries for it count time from the insertion,
// by a clock of their own, and most start a goroutine; here a use extends the
// time, the clock is the caller's, and a request's effect depends on the binding
// at that moment, which is one step under one lock.
type Sessions struct {
	max int

	mu      sync.RWMutex
	all     map[sessionKey]*session
	ring    session // its next is the one used last, its prev the first to go
	forgets forgetlog.Log
}

// sessionKey keeps sessions of different scopes apart. (Tenants are in the
// session's key already.) Prompt.Scope would have to be allocated.
type sessionKey struct{ model, adapter, salt, session string }

func keyOf(p *router.Prompt) (sessionKey, bool) {
	return sessionKey{p.Model, p.Adapter, p.Salt, p.Session},
		p.Session != "" && len(p.Model)+len(p.Adapter)+len(p.Salt)+len(p.Session) <= maxKey
}

// clone copies a string that may be part of a large body.
func (k sessionKey) clone() sessionKey {
	return sessionKey{strings.Clone(k.model), strings.Clone(k.adapter), strings.Clone(k.salt), strings.Clone(k.session)}
}

type session struct {
	key        sessionKey
	id         string // the target's
	expires    time.Time
	bound      time.Time
	mark       uint64 // Sessions.forgets when it was bound
	served     bool   // the target has shown a token since it was bound
	byHand     int    // requests under way that were recorded without a memo
	prev, next *session
}

// NewSessions returns a table for up to max sessions; 0 means 100,000.
func NewSessions(max int) (*Sessions, error) {
	if max < 0 {
		return nil, fmt.Errorf("pipeline: %w", &router.ConfigError{
			Field: "MaxSessions", Value: max, Allowed: "at least 1, or 0 for the default",
		})
	}
	if max == 0 {
		max = defaultSessions
	}
	s := &Sessions{max: max, all: make(map[sessionKey]*session)}
	s.ring.prev, s.ring.next = &s.ring, &s.ring
	return s, nil
}

// Len returns the number of remembered sessions, including expired ones and
// those of forgotten targets that still occupy a place.
func (s *Sessions) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.all)
}

// target returns the ID of the target that k is bound to. It changes nothing.
func (s *Sessions) target(k sessionKey, now time.Time) (id string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.at(k, now); e != nil {
		return e.id, true
	}
	return "", false
}

func (s *Sessions) at(k sessionKey, now time.Time) *session {
	if e := s.all[k]; e != nil && !now.After(e.expires) && !s.forgets.Forgotten(e.id, e.mark) {
		return e
	}
	return nil
}

// forget voids the bindings to id, in one step. It keeps its place until it is the
// one used least recently.
func (s *Sessions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets.Forget(id)
}

// visit is a request's part in its session's binding. One goroutine at a time
// uses it. The zero visit is that of a request that was not sent.
type visit struct {
	router.Progress
	mark uint64 // Sessions.forgets when it was sent
	made bool   // its Sent made the binding
}

// record learns from the outcome of a request of session k to the target id.
//
//   - Sent binds a session that is not bound, so that the next request of it,
//     which may be here before the first token, goes to the same target. A binding
//     to another target stays: the detour may be for once.
//   - The first token moves the binding to the target that served.
//   - A failure that another target might not have had releases the binding to
//     the target that failed. Any other failure removes the binding that Sent
//     had made.
//
// All that happens to a session extends its time.
func (s *Sessions) record(v *visit, k sessionKey, id string, o *router.Outcome, now time.Time, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.at(k, now)
	first := !v.SawToken()
	stage := v.Next(*o)
	switch {
	case stage == 0:
		return
	case stage == router.Sent:
		v.mark, v.made = s.forgets.Mark(), e == nil
		if e == nil {
			e = s.bind(k, id, now)
		}
	case !s.forgets.Forgotten(id, v.mark):
		e = s.learn(v, e, k, id, o, first, now)
	}
	if e != nil {
		s.touch(e, now.Add(ttl))
	}
	s.sweep(now)
}

// learn returns the binding that is left, nil if none is. first says that no token was seen before o.
func (s *Sessions) learn(v *visit, e *session, k sessionKey, id string, o *router.Outcome, first bool,
	now time.Time) *session {
	mine := e != nil && e.id == id
	switch {
	case o.Stage == router.Failed:
		if mine && (o.Blames() || v.made && !e.served) {
			s.drop(e)
			return nil
		}
	case o.Stage == router.FirstToken || o.Stage == router.Finished:
		// The end of a reply after its first token changes nothing, unless the
		// binding was lost meanwhile.
		if !mine && (first || e == nil) {
			e = s.bind(k, id, now)
		}
		if e.id == id {
			e.served = true
		}
	}
	return e
}

// recordByHand is record for a request without a visit. Only the binding shows
// that it was sent, so Sent moves it immediately.
func (s *Sessions) recordByHand(k sessionKey, id string, o *router.Outcome, now time.Time, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.at(k, now)
	switch {
	case o.Stage == router.Sent:
		if e == nil || e.id != id {
			e = s.bind(k, id, now)
		}
		e.byHand++
	case e == nil || e.id != id || e.byHand == 0:
		return
	case o.Stage == router.FirstToken:
		e.served = true
	case o.Stage.Final():
		e.byHand--
		e.served = e.served || o.Stage == router.Finished
		if o.Stage == router.Failed && (o.Blames() || !e.served && e.byHand == 0) {
			s.drop(e)
			return
		}
	default:
		return
	}
	s.touch(e, now.Add(ttl))
	s.sweep(now)
}

// bind binds k to id again.
func (s *Sessions) bind(k sessionKey, id string, now time.Time) *session {
	e := s.all[k]
	if e == nil {
		if len(s.all) >= s.max {
			s.drop(s.ring.prev)
		}
		e = &session{key: k.clone()}
		s.all[e.key] = e
	} else {
		e.unlink()
		*e = session{key: e.key}
	}
	e.id, e.bound, e.mark = id, now, s.forgets.Mark()
	e.link(&s.ring)
	return e
}

// touch makes e the one used last. A shorter time of another strategy over the
// same table does not cut it short.
func (s *Sessions) touch(e *session, expires time.Time) {
	if expires.After(e.expires) {
		e.expires = expires
	}
	e.unlink()
	e.link(&s.ring)
}

// sweep drops up to two sessions past their time, more than one call can add.
func (s *Sessions) sweep(now time.Time) {
	for range 2 {
		if e := s.ring.prev; e != &s.ring && now.After(e.expires) {
			s.drop(e)
		}
	}
}

func (s *Sessions) drop(e *session) {
	e.unlink()
	delete(s.all, e.key)
}

func (e *session) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (e *session) link(after *session) {
	e.prev, e.next = after, after.next
	after.next.prev = e
	after.next = e
}
