package main

import (
	"fmt"
	"time"

	"github.com/warmroute/router/kvindex"
)

// exchange is one request and its outcome.
type exchange struct {
	phase     string
	sent, end time.Time
	target    string // the engine's URL
	reason    string
	status    int
	attempts  string
	predicted int // tokens; -1 if the gateway had no numbers
	reported  int
	tokens    []uint32 // of the prompt, as the engine says
	text      string   // of the reply
	live      bool     // the chosen engine's stream was live when it was sent
}

// judged reports whether the prediction was made from a live stream.
func (x *exchange) judged() bool { return x.predicted >= 0 && x.live }

func (x *exchange) exact() bool { return x.predicted == x.reported }

// cause is why a prediction missed.
type cause string

const (
	causeReset    cause = "the cache had been reset, which an idle engine reports with its next request's events"
	causeRestart  cause = "the first request after the engine was started again, of which nothing had come over the wire"
	causeLate     cause = "events came after it was sent"
	causePresumed cause = "presumed cached because of prompts that were sent there less than 2 s before"
	causeGateway  cause = "the events that had arrived agree with the engine; the gateway predicted otherwise"
	causeLearned  cause = "a block that EAGLE and MTP compute again, learned from an engine's first replies"
	causeUnknown  cause = "not explained by the events"
)

// presumeFor is how long the gateway presumes a sent prompt resident,
// precise_cache_aware's default.
const presumeFor = 2 * time.Second

// explain returns the cause of x's missed prediction. log has the messages of
// its engine's stream until some time after its end; before are the requests
// before it, the latest last; started is the time of the engine's restart, zero
// if there was none.
func explain(x *exchange, log []arrival, before []*exchange, started time.Time) (cause, string, error) {
	r, err := newReplica(x.target)
	if err != nil {
		return "", "", err
	}
	i, told := 0, false
	for ; i < len(log) && !log[i].at.After(x.sent); i++ {
		if err := r.apply(log[i]); err != nil {
			return "", "", err
		}
		told = told || log[i].at.After(started)
	}
	held := r.holds(x.tokens)
	if held == x.reported {
		if n, age := presumed(x, before); x.predicted > held && n >= x.predicted {
			return causePresumed, fmt.Sprintf("%d tokens, sent %d ms before", n, age.Milliseconds()), nil
		}
		return causeGateway, fmt.Sprintf("the events say %d", held), nil
	}
	if !told && !started.IsZero() {
		return causeRestart, "", nil
	}
	// The first state after it was sent that matches the engine's report.
	cleared, from := false, i
	for ; i < len(log); i++ {
		if err := r.apply(log[i]); err != nil {
			return "", "", err
		}
		cleared = cleared || log[i].event.Kind == kvindex.Cleared
		if r.holds(x.tokens) != x.reported {
			continue
		}
		if cleared {
			return causeReset, fmt.Sprintf("reported %d ms after it was sent", log[i].at.Sub(x.sent).Milliseconds()), nil
		}
		return causeLate, fmt.Sprintf("%d, the last of them %d ms after", i-from+1, log[i].at.Sub(x.sent).Milliseconds()), nil
	}
	return causeUnknown, fmt.Sprintf("which said %d when it was sent", held), nil
}

// presumed returns the most leading tokens that x shares with a request that its
// engine was sent shortly before, and how long before.
func presumed(x *exchange, before []*exchange) (n int, age time.Duration) {
	for i := len(before) - 1; i >= 0; i-- {
		b := before[i]
		d := x.sent.Sub(b.sent)
		if d >= presumeFor+100*time.Millisecond { // the gateway's clock starts a little later
			break
		}
		if b.target != x.target {
			continue
		}
		if k := shared(x.tokens, b.tokens); k > n {
			n, age = k, d
		}
	}
	return n, age
}

func shared(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
