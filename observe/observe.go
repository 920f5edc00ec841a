// Package observe names decisions, outcomes and errors for metrics: in few words,
// of which none carries a part of a prompt.
//
// contrib/prometheus and contrib/otel are made with it, and a program with another
// metrics library can be: the values fit labels, and Names and Targets bound their
// number. It has no metrics of its own.
package observe

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync/atomic"

	"github.com/warmroute/router"
)

// Other stands for every value beyond a bound.
const Other = "other"

// Reason returns r if it is a word in snake case of at most 64 bytes, "none" if it
// is empty and Other if it is anything else: a strategy of the user's own may have
// put a text there.
func Reason(r router.Reason) string {
	switch {
	case r == "":
		return "none"
	case len(r) > 64:
		return Other
	}
	for i := range len(r) {
		if c := r[i]; c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return Other
		}
	}
	return string(r)
}

// Spill reports whether r means that the target with the best claim was passed over
// because it was overloaded.
func Spill(r router.Reason) bool {
	return r == router.ReasonSpill || r == router.ReasonHashOverflow
}

// Fallback returns the cause why a strategy could not decide by the cache it is made
// for, "" if it could.
func Fallback(strategy string, r router.Reason) string {
	switch {
	case strings.HasPrefix(string(r), "no_tokens_"):
		return "no_tokens"
	case strings.HasPrefix(string(r), "untrusted_"):
		return "untrusted"
	case strategy == "lmcache_aware" &&
		(r == router.ReasonWarm || r == router.ReasonLeastLoad || r == router.ReasonRandom):
		return "no_occupancy"
	}
	return ""
}

// Share returns the share of the prompt that is believed cached; ok is false for
// an empty prompt.
func Share(d router.Decision) (share float64, ok bool) {
	if d.Length <= 0 {
		return 0, false
	}
	return min(max(float64(d.Cached)/float64(d.Length), 0), 1), true
}

// Usage compares predicted cached tokens with those that engines report. It is safe
// for concurrent use; the zero Usage is ready.
type Usage struct{ reports atomic.Bool }

// Judge returns the cached tokens that d predicted and those that the engine
// reported in o. ok is false if one of them is not known. An engine that
// reports no cached tokens looks like one that had none, so a 0 is believed once
// any reported more.
func (u *Usage) Judge(d router.Decision, o router.Outcome) (predicted, reported int, ok bool) {
	share, ok := Share(d)
	if !ok || o.Stage != router.Finished || o.PromptTokens <= 0 || o.CachedTokens < 0 {
		return 0, 0, false
	}
	if o.CachedTokens > 0 {
		u.reports.Store(true)
	} else if !u.reports.Load() {
		return 0, 0, false
	}
	if d.Unit == router.Tokens {
		predicted = min(max(d.Cached, 0), o.PromptTokens)
	} else {
		predicted = int(math.Round(share * float64(o.PromptTokens)))
	}
	return predicted, min(o.CachedTokens, o.PromptTokens), true
}

// Code returns the class of an HTTP status, "none" if there was none.
func Code(status int) string {
	switch {
	case status == 0:
		return "none"
	case status < 100 || status > 599:
		return Other
	}
	return classes[status/100-1]
}

var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

// Causes returns the values of Cause that are to be expected. The slice is the
// caller's.
func Causes() []string { return []string{"connection", "timeout", "408", "429", "5xx"} }

// NoTargets returns the values of NoTarget that are to be expected. The slice is the
// caller's.
func NoTargets() []string { return []string{"empty_fleet", "not_ready", "excluded", "shed", "error"} }

// Cause returns the cause of a failed attempt that is made again elsewhere.
func Cause(o router.Outcome) string {
	switch {
	case o.Status == 408:
		return "408"
	case o.Status == 429:
		return "429"
	case o.Status >= 500 && o.Status <= 599:
		return "5xx"
	case o.Status != 0:
		return Other
	}
	var n net.Error
	if errors.Is(o.Err, context.DeadlineExceeded) || errors.As(o.Err, &n) && n.Timeout() {
		return "timeout"
	}
	return "connection"
}

// NoTarget returns the cause of a Route's error.
func NoTarget(err error) string {
	var e *router.NoTargetError
	switch {
	case !errors.As(err, &e):
		if errors.Is(err, router.ErrNoTarget) {
			return "unknown"
		}
		return "error"
	case e.Shed != "":
		return "shed"
	case e.Offered == 0:
		return "empty_fleet"
	case e.NotReady > 0:
		return "not_ready"
	case e.Excluded > 0:
		return "excluded"
	}
	return "unknown"
}

// Stage returns the name of a final stage.
func Stage(s router.Stage) string {
	if s.Final() {
		return s.String()
	}
	return Other
}

// State returns the name of a state that this version knows, else Other.
func State(s router.State) string {
	if s > router.Asleep {
		return Other
	}
	return s.String()
}

// StreamState returns the name of one of zmqsub's states, else Other.
func StreamState(s string) string {
	switch s {
	case "cold", "partial", "live", "resyncing", "down":
		return s
	}
	return Other
}

// Missing returns how many messages are missing between last and seq, within
// bounds: an engine may write any number.
func Missing(last, seq uint64) uint64 {
	if seq <= last {
		return 0
	}
	return min(seq-last-1, 1<<32)
}

// Target returns a target's ID as it may be shown: a URL without user, password,
// query and fragment.
func Target(id string) string {
	scheme, rest, ok := strings.Cut(id, "://")
	if !ok {
		return id
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	host, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	return scheme + "://" + host[strings.LastIndexByte(host, '@')+1:] + path
}
