// Package router picks, for each prompt, the replica of a model that can
// answer soonest: one that already holds the prompt's KV cache and is not too
// busy.
//
// The package is the vocabulary that strategies, fleets and gateways share
// ([Prompt], [Target], [Load], [Strategy], [Decision], [Outcome]) and the
// [Router] that joins a strategy with a fleet: it chooses and counts in one
// step, hands out a [Lease] for each request in flight, fails over, and reports
// its outcome. It brings no HTTP layer, imports the standard library only
// and starts no goroutine.
package router

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Prompt is the part of a request that decides where its KV cache may live. The
// zero Prompt is empty: it can be routed, and nothing matches it.
type Prompt struct {
	// Model, Adapter and Salt are the scope: prompts of different scopes share
	// no cache. Model is the name after aliases.
	Model, Adapter, Salt string
	// Session is the sticky-session key, "" for none.
	Session string
	// Text is the canonical conversation text that package prompt makes; "" if it
	// is unknown.
	Text string
	// Tokens are the engine's own token ids, nil if they are unknown. They are not
	// copied: the caller leaves them alone until the request has ended.
	Tokens []uint32
	// Account names the owner of the limit at a target that the request counts against,
	// such as a provider's key; "": the limit of all. A refusal holds for requests of the
	// same Model and Account.
	Account string
	// Must are the ids of state that the request refers to and that only the target which made it has: a previous
	// response, a conversation, a file, a medium that is named and not sent. If Options.Holders knows a target for
	// one of them that the fleet offers, the request goes there, in whatever State it is; the ids before count
	// more. 64 are looked at. Ids of media begin with "media:".
	Must []string
	// Brings are the ids of state that the request itself brings, such as a medium that is sent
	// with a name: once the request was served, its target has them, and those in Must. They do
	// not decide about its target. 64 are kept.
	Brings []string
}

// Scope returns one key for Model, Adapter and Salt. Different scopes have
// different keys. The key is Model itself, without an allocation, if there is
// neither adapter nor salt and Model does not begin with a zero byte.
func (p Prompt) Scope() string {
	if p.Adapter == "" && p.Salt == "" && !strings.HasPrefix(p.Model, "\x00") {
		return p.Model
	}
	// Lengths before the parts make the join reversible, so no two scopes meet;
	// the zero byte keeps it apart from every plain model.
	b := make([]byte, 0, 2+2*6+len(p.Model)+len(p.Adapter)+len(p.Salt))
	b = append(b, 0)
	b = strconv.AppendInt(b, int64(len(p.Model)), 10)
	b = append(b, ':')
	b = append(b, p.Model...)
	b = strconv.AppendInt(b, int64(len(p.Adapter)), 10)
	b = append(b, ':')
	b = append(b, p.Adapter...)
	b = append(b, p.Salt...)
	return string(b)
}

// Length returns the length of the whole prompt and its unit: the number of
// Tokens, which is exact, or, if there are none, the bytes of Text.
func (p Prompt) Length() (int, Unit) {
	if len(p.Tokens) > 0 {
		return len(p.Tokens), Tokens
	}
	return len(p.Text), Bytes
}

// Target is one replica of a model as a fleet offers it.
type Target struct {
	// ID names the replica permanently. Callers pass the same string values call
	// after call, so that a strategy may keep by them the data that it looked up.
	ID string
	// Weight is the capacity relative to the others; 0, negative and NaN mean 1.
	// To drain a target, set State.
	Weight float64
	Load   Load
	State  State
	// Ref is the caller's own (an address, a rank, a connection). It is copied
	// along and never read.
	Ref any
}

// State says whether a target may be picked. The zero State is Ready, the only
// one that may.
type State uint8

// The states of a target.
const (
	Ready     State = iota // may be picked
	Unhealthy              // its probes fail
	Cooling                // failed lately, or asked to be left alone for a while
	Tripped                // its circuit breaker is open
	Draining               // finishes the requests it has and takes no new one
	Full                   // alive, and refused a request because it has too many
	Asleep                 // its engine sleeps and serves nothing until it is woken
)

// String returns the state's name in snake case, fit for a metric label.
func (s State) String() string {
	switch s {
	case Ready:
		return "ready"
	case Unhealthy:
		return "unhealthy"
	case Cooling:
		return "cooling"
	case Tripped:
		return "tripped"
	case Draining:
		return "draining"
	case Full:
		return "full"
	case Asleep:
		return "asleep"
	}
	return "state_" + strconv.Itoa(int(s))
}

// Load is the work that is before a new request on a target. The zero Load is an
// unknown one.
type Load struct {
	// Known is false, with all other fields zero, if nothing is known.
	Known bool
	// InFlight is the number of requests that this process sent to the target
	// and has not seen finish.
	InFlight int
	// Queued is the number of further requests at the engine, beyond InFlight,
	// as last scraped.
	Queued int
	// Prefill is the number of tokens that this process sent and that still wait
	// for prefill.
	Prefill int
}

// Strategy chooses a target for a prompt. Its methods are safe for concurrent
// use.
type Strategy interface {
	// Pick chooses one of targets; those that are not Ready are in the slice
	// and are skipped. It does not block, do I/O, change targets or keep the
	// slice, and may ignore a done ctx. Its error is ErrNoTarget if nothing
	// could be picked.
	Pick(ctx context.Context, p Prompt, targets []Target) (Decision, error)
	// Record reports how far a decision has come: Sent, then FirstToken if it is
	// seen, then one final stage. It is called for one decision by one goroutine
	// at a time, maybe not the one that picked. Without Sent nothing is learned,
	// and nothing is taken back.
	Record(d Decision, o Outcome)
}

// Explainer is an optional part of a Strategy.
type Explainer interface {
	// Explain appends every candidate to dst, best first, and returns it. It
	// changes nothing: the next Pick is the one that would have been.
	Explain(ctx context.Context, p Prompt, targets []Target, dst []Candidate) []Candidate
}

// Preparer is an optional part of a Strategy: a Pick in two steps. A Router
// takes the first one before it asks its fleet to choose, so that requests match
// their prompts in parallel, and a fleet is locked only while a target is chosen and
// counted.
type Preparer interface {
	// Prepare does the part of Pick that needs the prompt alone. It changes nothing
	// that another call can see. The result is passed to one PickPrepared, or to
	// none if the fleet has nothing to offer; nil is allowed.
	Prepare(ctx context.Context, p Prompt) (prepared any)
	// PickPrepared is Pick for a prompt that was prepared: it decides by the loads
	// and states of targets as they are now. Its match may lack requests that were
	// sent after Prepare. prepared is a result of Prepare for the same prompt, or
	// nil: then it is Pick.
	PickPrepared(ctx context.Context, p Prompt, targets []Target, prepared any) (Decision, error)
}

// Forgetter is an optional part of a Strategy.
type Forgetter interface {
	// Forget drops all that is known of the target with this ID: it is gone, or its
	// cache is.
	Forget(id string)
}

// Decision is a strategy's choice and its reason.
type Decision struct {
	Prompt Prompt
	// Target is the chosen one as Pick saw it, before this request was counted.
	Target Target
	// Cached is the leading part of the prompt believed cached at Target, Length
	// the whole prompt, both in Unit; 0 and the length if nothing is matched.
	Cached, Length int
	Unit           Unit
	// Reason says why. The library's own values are stable and fit a metric
	// label.
	Reason Reason
	// Memo is the strategy's own data, carried from Pick to Record. It is nil in a
	// Decision made by hand, which Record accepts.
	Memo any
}

// Candidate is one target as Explain judges it.
type Candidate struct {
	Target Target
	// Cached and Length are as in Decision.
	Cached, Length int
	Unit           Unit
	// Score is 0..1, higher is better; NaN if the strategy gives none.
	Score float64
	// Reason says why the target is the one to take, or why it is not.
	Reason Reason
}

// Unit is the unit of Cached and Length. The zero Unit is Bytes.
type Unit uint8

// The units.
const (
	Bytes  Unit = iota // bytes of Prompt.Text
	Tokens             // ids of Prompt.Tokens
)

// String returns "bytes" or "tokens".
func (u Unit) String() string {
	if u == Tokens {
		return "tokens"
	}
	return "bytes"
}

// ErrNoTarget is found by errors.Is in every error that says that nothing could be
// picked.
var ErrNoTarget = errors.New("router: no target")

// NoTargetError says why nothing could be picked. It is returned by pointer and
// is ErrNoTarget.
type NoTargetError struct {
	// Offered is the number of targets that the fleet offered, Excluded how many
	// of them the caller, or a filter of the strategy, had ruled out, NotReady how
	// many of those left to the strategy were not Ready.
	Offered, Excluded, NotReady int
	// Full is how many of those that were not Ready were Full.
	Full int
	// RetryAfter is when the first of the targets that were not ruled out may be Ready
	// again, as far as the fleet knows; 0: unknown. A Fleet that is no ReadyTimer speaks of all
	// its targets. If the request was shed, it is when a place is to be expected.
	RetryAfter time.Duration
	// Shed says why Options.Queue gave the request up; "": it did not. Waited is how
	// long the request had waited in it.
	Shed   string
	Waited time.Duration
}

// Status returns the HTTP status for a client: 429 if the request was shed, else 503.
func (e *NoTargetError) Status() int {
	if e.Shed != "" {
		return 429
	}
	return 503
}

// Error describes e in one line.
func (e *NoTargetError) Error() string {
	s := fmt.Sprintf("router: no target: %d offered, %d excluded, %d not ready", e.Offered, e.Excluded, e.NotReady)
	if e.Shed != "" { // maybe before any target was looked at
		s = fmt.Sprintf("router: no target: shed after %v in the queue (%s)", e.Waited.Round(time.Millisecond), e.Shed)
	}
	if e.RetryAfter > 0 {
		s += ", retry after " + e.RetryAfter.String()
	}
	return s
}

// Is reports that e is ErrNoTarget.
func (e *NoTargetError) Is(target error) bool { return target == ErrNoTarget }
