package disagg

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/warmroute/router"
)

// Splitter sends requests to two targets where that pays. Make one with New. Its methods
// are safe for concurrent use.
type Splitter struct {
	cfg    Config
	decode *router.Router
	n      struct{ split, failed, reused, again, stranded, expired, silent atomic.Uint64 }
	skips  [len(skips)]atomic.Uint64
}

var skips = [...]Skip{SkipShort, SkipIdle, SkipNoTarget, SkipFailed, SkipNoParams, SkipUnsupported}

// New returns a Splitter. The error joins a *router.ConfigError for each field with a bad
// value.
func New(c Config) (*Splitter, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Splitter{cfg: c.WithDefaults()}
	s.decode = s.cfg.Router.Among(func(t router.Target) bool { return s.cfg.Place(t).Role != Prefill })
	return s, nil
}

// Stats count since New.
type Stats struct {
	// Split are the prompts that were computed by a prefill target, or sent to one by a
	// protocol that sends to both at once; PrefillFailed the attempts at it that failed.
	Split, PrefillFailed uint64
	// Skipped counts the decode targets that computed the prompt too, by the reason; it has every reason.
	Skipped map[Skip]uint64
	// Reused are parameters sent to a further decode target, Again prompts that were prefilled once more because their
	// blocks were gone or may be, Expired parameters dropped as too old; see Config.PinnedFor.
	Reused, Again, Expired uint64
	// Stranded are prompts that were computed for a decode target which did not reply.
	Stranded uint64
	// Silent are decode targets that sent no token within DecodeTimeout.
	Silent uint64
}

// Stats returns the counts.
func (s *Splitter) Stats() Stats {
	st := Stats{
		Split: s.n.split.Load(), PrefillFailed: s.n.failed.Load(), Reused: s.n.reused.Load(), Again: s.n.again.Load(),
		Expired: s.n.expired.Load(), Stranded: s.n.stranded.Load(), Silent: s.n.silent.Load(),
		Skipped: make(map[Skip]uint64, len(skips)),
	}
	for i, k := range skips {
		st.Skipped[k] = s.skips[i].Load()
	}
	return st
}

// Place returns a target's place.
func (s *Splitter) Place(t router.Target) Place {
	p := s.cfg.Place(t)
	p.Role = cmp.Or(p.Role, Both)
	return p
}

// Request is a client's request. Header and Body are not changed.
type Request struct {
	Path   string // "/v1/chat/completions"
	Header http.Header
	Body   []byte
}

// Attempt is one request to a decode target, to be sent by the caller of Do.
type Attempt struct {
	// Lease is the decode target's. Do settles it.
	Lease *router.Lease
	// Header and Body are to be sent. They are not to be changed.
	Header http.Header
	Body   []byte

	begun func() bool
}

// FirstToken reports the first token of the reply, to the Lease too. It returns false if that
// is too late, because the target was given up.
func (a *Attempt) FirstToken() bool { return a.begun() }

// The errors of Do.
var (
	// ErrUnsupported is a request that the protocols do not hand over, and Config.Strict.
	ErrUnsupported = errors.New("disagg: the request cannot be split: it is none for one reply to one prompt")
	// ErrPrefill is found by errors.Is in the error of a request that no prefill target served, with Config.Strict.
	ErrPrefill = errors.New("disagg: no prefill target served the request")

	errSilent      = errors.New("disagg: the target sent no token in time")
	errPrefillGone = errors.New("disagg: the prefill target failed")
	errServed      = errors.New("disagg: the decode target has replied")
)

// PrefillError is a prefill target's own reply of 400 to 499 to a request, with Config.Strict. It is returned by
// pointer and is ErrPrefill.
type PrefillError struct {
	Status int
	Header http.Header
	Body   []byte
}

// Error names the status.
func (e *PrefillError) Error() string { return ErrPrefill.Error() + ": " + http.StatusText(e.Status) }

// Is reports that e is ErrPrefill.
func (e *PrefillError) Is(target error) bool { return target == ErrPrefill }

// Do chooses a decode target for p, has the prompt computed elsewhere if that pays, and calls send with the request for
// the decode target. It retries, counts and settles as router.Router.Do does; send returns before its ctx has been done
// for long, and may be called more than once for a target. If prefill fails, another target is tried, then, unless
// Config.Strict is set, the decode target alone. If the decode target cannot be reached, another one gets the same
// parameters as long as the blocks are pinned. If it fails otherwise before its first token, it may have fetched the
// blocks or given them up, so the same prefill target, which has the prompt cached, is asked once more: engines do not
// notice that blocks have gone to another prompt.
//
// send calls Attempt.FirstToken. The Outcome's CachedTokens are ignored if another target has computed the prompt,
// because engines then report that one's.
//
// The error is that of Router.Do, of Check, ErrBody, or one of this package's.
func (s *Splitter) Do(ctx context.Context, p router.Prompt, r Request,
	send func(context.Context, *Attempt) (router.Outcome, error)) error {
	q, err := s.begin(p, r)
	if err != nil {
		return err
	}
	q.send = send
	defer q.strand(ctx)
	return s.decode.Do(ctx, p, q.attempt)
}

// begin returns the request, or the error of one that is not sent.
func (s *Splitter) begin(p router.Prompt, r Request) (*request, error) {
	if err := Check(r.Body); err != nil {
		return nil, err
	}
	r.Header = r.Header.Clone()
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	CleanHeader(r.Header)
	q := &request{s: s, Request: r, prompt: p}
	q.supported = supports(r.Path) && splits(r.Body)
	if s.cfg.Strict && !q.supported {
		return nil, ErrUnsupported
	}
	return q, nil
}

// Router returns the Router over the decode targets, for a host with a retry loop of its own and for requests
// that have no prompt.
func (s *Splitter) Router() *router.Router { return s.decode }

// Split is one request of a host with a retry loop of its own, which leases decode targets of
// Splitter.Router, calls Attempt for each, and End at the end. One goroutine at a time uses it.
type Split struct{ q *request }

// Split returns a Split. The error is that of Check, or ErrUnsupported.
func (s *Splitter) Split(p router.Prompt, r Request) (*Split, error) {
	q, err := s.begin(p, r)
	if err != nil {
		return nil, err
	}
	return &Split{q}, nil
}

// Attempt has the prompt computed elsewhere if that pays, calls send as Do does, and returns the outcome,
// which the host gives to the lease. send may return when the first token has come, with the Stage
// FirstToken; then its ctx goes on until that of Attempt is done.
func (x *Split) Attempt(ctx context.Context, l *router.Lease,
	send func(context.Context, *Attempt) (router.Outcome, error)) router.Outcome {
	x.q.send = send
	o, err := x.q.attempt(ctx, l)
	if err != nil {
		o.Err = err
	}
	return o
}

// Outcome returns the outcome of a reply that was passed on after Attempt had returned, without the
// cached tokens if another target has computed the prompt.
func (x *Split) Outcome(o router.Outcome) router.Outcome {
	if x.q.elsewhere {
		o.CachedTokens, o.CachedReported = 0, false
	}
	return o
}

// End ends the request.
func (x *Split) End(ctx context.Context) { x.q.strand(ctx) }

// supports reports whether the protocols know a path.
func supports(path string) bool {
	return strings.HasSuffix(path, "/chat/completions") || strings.HasSuffix(path, "/v1/completions")
}

// skip returns why the decode target of d computes the prompt itself, "" if it does not.
func (q *request) skip(d router.Decision) Skip {
	c := &q.s.cfg
	switch {
	case !q.supported:
		return SkipUnsupported
	case q.alone != "":
		return q.alone
	case c.Strict:
		return ""
	}
	uncached := d.Length - d.Cached
	if d.Unit == router.Bytes {
		uncached /= 4
	}
	switch l := d.Target.Load; {
	case uncached < c.MinUncached:
		return SkipShort
	case l.Known && l.InFlight+l.Queued < c.MinInFlight:
		return SkipIdle
	}
	return ""
}

// skipped counts a decode target that computes the prompt itself.
func (s *Splitter) skipped(ctx context.Context, d router.Decision, why Skip) {
	for i, k := range skips {
		if k == why {
			s.skips[i].Add(1)
		}
	}
	if f := s.cfg.Trace.Skipped; f != nil {
		f(ctx, d, why)
	}
}
