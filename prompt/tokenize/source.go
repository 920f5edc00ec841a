package tokenize

import (
	"context"
	"errors"
	"time"
)

// sourceKey is one engine's route for one kind of request: SGLang before 0.5.23 takes
// texts and refuses chats.
type sourceKey struct{ target, kind string }

// source is the state of one; guarded by Client.mu.
type source struct {
	failing  bool
	failures int       // in a row
	until    time.Time // not to be asked before
	probing  bool      // one asks whether it is better
	proved   bool      // it has given ids
	refusals int       // in a row, while it is not proved
}

// refusalsToFail is how many refusals make a route that never gave ids a failing
// one. One alone may be its request's fault.
const refusalsToFail = 8

// maxSources bounds the engines that are remembered beyond the targets at hand.
const maxSources = 256

// begin reports whether a source may be asked now. Of one that failed, only one
// at a time asks.
func (c *Client) begin(k sourceKey, targets []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[k]
	if s == nil {
		if len(c.sources) >= 2*len(targets)+maxSources {
			c.prune(targets)
		}
		s = new(source)
		c.sources[k] = s
	}
	if !s.failing {
		return true
	}
	if s.probing || time.Now().Before(s.until) {
		return false
	}
	s.probing = true
	return true
}

// prune forgets the sources that are no targets now.
func (c *Client) prune(targets []string) {
	keep := make(map[string]bool, len(targets))
	for _, t := range targets {
		keep[t] = true
	}
	for k := range c.sources {
		if !keep[k.target] {
			delete(c.sources, k)
		}
	}
}

// settle notes how a source answered. ctx is the caller's, without Timeout.
func (c *Client) settle(ctx context.Context, k sourceKey, err error) {
	c.mu.Lock()
	s := c.sources[k]
	if s == nil { // pruned meanwhile
		c.mu.Unlock()
		return
	}
	s.probing = false
	was := s.failing
	switch {
	case err == nil:
		*s = source{proved: true}
	case ctx.Err() != nil:
		// The caller went away or had no more time: not the engine's fault.
	case errors.Is(err, errTemplate), errors.Is(err, ErrBusy): // the latter is our own want of memory
		s.failing, s.failures = false, 0 // it answers
	case errors.Is(err, ErrRefused):
		if s.refusals++; s.proved || s.refusals < refusalsToFail {
			s.failing, s.failures = false, 0 // it answers
			break
		}
		c.fail(s)
	default:
		c.fail(s)
	}
	is := s.failing
	c.mu.Unlock()
	if was != is && c.cfg.Trace.Changed != nil {
		if !is {
			err = nil
		}
		c.cfg.Trace.Changed(k.target, k.kind, err)
	}
}

func (c *Client) fail(s *source) {
	c.n.failures.Add(1)
	s.failing = true
	wait := c.cfg.MaxBackoff
	if s.failures < 30 {
		wait = min(c.cfg.MinBackoff<<s.failures, c.cfg.MaxBackoff)
	}
	if wait <= 0 { // shifted out
		wait = c.cfg.MaxBackoff
	}
	s.failures++
	s.until = time.Now().Add(wait)
}
