// Package trace holds the workloads that the fleet simulator replays: readers for
// recorded traces and generators of made ones, which all yield one type,
// [Workload].
//
// A prompt is known as a list of pieces (an id and a length in tokens; if only
// hashes of blocks were recorded, and in generated workloads) or as real text.
// Both have a text, at four bytes a token, and the same cache blocks for equal
// leading parts.
package trace

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// BytesPerToken is the length of a token in text everywhere in the simulation.
const BytesPerToken = 4

// Piece is a run of tokens with the content that its ID identifies: pieces of
// one ID are equal as far as the shorter one reaches, pieces of different IDs
// differ from their first token.
type Piece struct {
	ID     uint64
	Tokens int
}

// None is Request.After of a request that waits for no other.
const None = -1

// Request is one request of a workload.
type Request struct {
	// Arrival is the time of its arrival since the start; not used if it
	// follows another.
	Arrival time.Duration
	// After is the index of the request that must have been answered before this
	// one is made, None for none; Think is the time between. (Closed loop: turns of
	// one conversation.)
	After int
	Think time.Duration
	// Session names the conversation, "" for none.
	Session string
	// Adapter names the LoRA adapter, "" for none.
	Adapter string
	// Prompt is the sent prompt as pieces, or Text is, if the real text is known.
	Prompt []Piece
	Text   string
	// Input and Output are lengths in tokens, at least 1 each. Input is the sum of
	// Prompt, or the bytes of Text / BytesPerToken, rounded up.
	Input, Output int
	// Reply is the answer if it is known because a later prompt repeats it, and
	// ReplyText is in a request with Text. Otherwise the engine makes up one that no
	// prompt has.
	Reply     []Piece
	ReplyText string
}

// Workload is a list of requests. It is not to be changed once it is complete and
// is then safe for concurrent use.
type Workload struct {
	Name string
	// Requests are in order of arrival; one that follows another comes after it.
	Requests []Request

	mu     sync.Mutex
	blocks map[int][][]uint64 // by tokens in a block
}

// Source makes a workload at a load and for a seed.
type Source struct {
	// Name is the one by which the command knows it.
	Name string
	// About describes it in one line, with its source.
	About string
	// Unit is the unit of a rate: "x" (times the recorded rate) or "req/s".
	Unit string
	// Rates are the loads to look at by default, lowest first, and below the
	// saturation of Replicas replicas of the default calibration.
	Rates    []float64
	Replicas int // 0 means 8
	// Build returns the workload at a rate. About lists the effects of a seed.
	Build func(rate float64, seed uint64) (*Workload, error)
}

// Check reports the first thing that is wrong with w.
func (w *Workload) Check() error {
	last := time.Duration(0)
	for i := range w.Requests {
		r := &w.Requests[i]
		switch {
		case r.Input < 1 || r.Output < 1:
			return fmt.Errorf("trace: %s: request %d has %d tokens of prompt and %d of output", w.Name, i, r.Input, r.Output)
		case r.After >= i || r.After < None:
			return fmt.Errorf("trace: %s: request %d follows request %d", w.Name, i, r.After)
		case r.Think < 0 || r.Arrival < 0:
			return fmt.Errorf("trace: %s: request %d comes before its time", w.Name, i)
		case r.After == None && r.Arrival < last:
			return fmt.Errorf("trace: %s: request %d arrives before the one ahead of it", w.Name, i)
		}
		if r.Text == "" && total(r.Prompt) != r.Input || r.Text != "" && tokens(len(r.Text)) != r.Input {
			return fmt.Errorf("trace: %s: request %d says %d tokens of prompt and has others", w.Name, i, r.Input)
		}
		if r.After == None {
			last = r.Arrival
		}
	}
	return nil
}

func total(ps []Piece) int {
	n := 0
	for _, p := range ps {
		n += p.Tokens
	}
	return n
}

// tokens returns the tokens of n bytes of text.
func tokens(n int) int { return max(1, (n+BytesPerToken-1)/BytesPerToken) }

// rng returns the source of randomness of one purpose.
func rng(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

// poisson returns n times of arrival at a mean rate a second.
func poisson(r *rand.Rand, n int, rate float64) []time.Duration {
	at := make([]time.Duration, n)
	t := 0.0
	for i := range at {
		t += r.ExpFloat64() / rate
		at[i] = time.Duration(t * float64(time.Second))
	}
	return at
}

// order sorts requests of which each names the one it follows: those that follow
// none by arrival, each of the others somewhere after the one it follows.
func order(rs []Request) []Request {
	n := len(rs)
	// A follower's place is that of the time at which it would come if answers took
	// no time.
	at := make([]time.Duration, n)
	idx := make([]int, n)
	for i := range rs {
		idx[i] = i
		at[i] = rs[i].Arrival
		if a := rs[i].After; a != None {
			at[i] = at[a] + rs[i].Think
		}
	}
	slices.SortStableFunc(idx, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	to := make([]int, n)
	for i, j := range idx {
		to[j] = i
	}
	out := make([]Request, n)
	for i, j := range idx {
		out[i] = rs[j]
		if out[i].After != None {
			out[i].After = to[out[i].After]
		}
	}
	return out
}
