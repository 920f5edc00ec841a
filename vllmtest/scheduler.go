package vllmtest

import (
	"errors"
	"slices"
	"time"
)

// seq is one prompt on its way through the scheduler. Between submit and done it
// belongs to the scheduler, unless its comment says otherwise.
type seq struct {
	root          blockKey
	tokens        []uint32 // the prompt, then the generated ones
	prompt        int      // length of the prompt
	want          int      // tokens to generate
	sample        func(i int) uint32
	adapter, salt string  // the scope, as events name it
	engine        *engine // the rank that it was given to
	slow          float64 // factor on the time of the steps that it takes part in; 0 is 1

	keys     []blockKey // of the full blocks of tokens
	blocks   []int32
	stored   int // leading blocks that are published
	computed int // leading tokens with computed KV
	state    seqState

	external int   // leading tokens that another replica has computed
	reports  bool  // cached is reported, which that replica found
	reported int   // in its own cache
	wrong    bool  // they may be those of other prompts
	pin      bool  // the blocks are kept when it has finished, for another replica
	room     int64 // of SGLang's request
	store    bool  // the blocks of the prompt are stored for others

	produced int
	cached   int // prompt tokens found in the cache when it was first scheduled
	counted  bool

	arrived, started, first, last, ended time.Time
	came                                 float64 // arrived by the engine's clock
	preempted                            int

	// wake gets a value when produced or state has changed; the submitter
	// receives from it. Its capacity is 1.
	wake chan struct{}
}

type seqState uint8

const (
	seqWaiting seqState = iota
	seqRunning
	seqFinished
	seqAborted
)

// newSeq computes the keys of the prompt, which needs no lock.
func newSeq(root blockKey, prompt []uint32, want, blockSize int, sample func(int) uint32) *seq {
	s := &seq{
		root: root, prompt: len(prompt), want: want, sample: sample,
		wake: make(chan struct{}, 1),
	}
	s.tokens = append(make([]uint32, 0, len(prompt)+min(want, 256)), prompt...)
	s.keys = appendKeys(make([]blockKey, 0, len(prompt)/blockSize+1+min(want, 256)/blockSize), root, s.tokens, blockSize)
	return s
}

func (s *seq) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// scheduler decides what each step computes. It does no I/O, reads no clock and
// is not safe for concurrent use.
type scheduler struct {
	clock   stepClock
	cfg     *Config
	pool    *pool
	running []*seq
	waiting []*seq
	m       *counters
	slots   slots
}

// step is the work of one step.
type step struct {
	work          []work
	tokens        int
	prefill       int     // tokens that are prefilled
	attention     float64 // sum over prefilled tokens of their context
	decodeContext float64 // sum over decoding sequences of their context
	slow          float64
	loads         int // of adapters
}

type work struct {
	s *seq
	n int
}

var errBusy = errors.New("the engine is overloaded: too many requests are waiting or running")

// submit queues s. It fails if too many requests are there already.
func (c *scheduler) submit(s *seq, now time.Time) error {
	if len(c.running)+len(c.waiting) >= c.cfg.MaxRequests {
		c.m.rejected++
		return errBusy
	}
	s.arrived, s.came = now, c.clock.now(now)
	c.waiting = append(c.waiting, s)
	return nil
}

// abort ends s early and frees its blocks; their contents stay cached. It does
// nothing if s has ended.
func (c *scheduler) abort(s *seq) {
	switch s.state {
	case seqWaiting:
		c.waiting = remove(c.waiting, s)
	case seqRunning:
		c.drop(s)
	default:
		return
	}
	s.state = seqAborted
	c.m.aborted++
	s.notify()
}

// drop takes a running s off the batch and gives its blocks back.
func (c *scheduler) drop(s *seq) {
	c.running = remove(c.running, s)
	c.pool.release(s.blocks)
	s.blocks = s.blocks[:0]
	s.stored = 0
}

func remove(l []*seq, s *seq) []*seq {
	if i := slices.Index(l, s); i >= 0 {
		return slices.Delete(l, i, i+1)
	}
	return l
}

// schedule returns the work of the next step, none if there is nothing
// to do. Blocks are taken and published here, so that sequences of one step
// share the blocks that the first of them computes.
func (c *scheduler) schedule(now time.Time) step {
	st := step{slow: 1}
	preempted := false
	for i := 0; i < len(c.running) && st.tokens < c.cfg.MaxStepTokens; i++ {
		s := c.running[i]
		n := min(len(s.tokens)-s.computed, c.cfg.MaxStepTokens-st.tokens)
		for !c.grow(s, nil, n) {
			preempted = true
			last := c.running[len(c.running)-1]
			c.preempt(last)
			if last == s {
				break
			}
		}
		if s.state == seqRunning {
			st.add(s, n)
		}
	}
	var passed []*seq // they wait for a slot
	for !preempted && len(c.waiting) > 0 && len(c.running) < c.cfg.MaxSeqs && st.tokens < c.cfg.MaxStepTokens {
		s := c.waiting[0]
		if !c.slotFor(s) {
			c.waiting, passed = slices.Delete(c.waiting, 0, 1), append(passed, s)
			continue
		}
		hits := max(0, c.pool.match(s.keys[:(len(s.tokens)-1)/c.cfg.BlockSize])-c.cfg.Recompute)
		s.computed = max(hits*c.cfg.BlockSize, min(s.external, len(s.tokens)-1))
		n := min(len(s.tokens)-s.computed, c.cfg.MaxStepTokens-st.tokens)
		if !c.grow(s, s.keys[:hits], n) {
			s.computed = 0
			break
		}
		c.waiting = slices.Delete(c.waiting, 0, 1)
		if c.use(s) {
			st.loads++
		}
		c.running = append(c.running, s)
		s.state = seqRunning
		if !s.counted {
			s.counted, s.started, s.cached = true, now, s.computed
			s.cached = hits * c.cfg.BlockSize
			c.m.prompt(s)
			c.m.external += uint64(s.computed - s.cached)
			if s.cached = s.computed; s.reports {
				s.cached = s.reported
			}
		}
		st.add(s, n)
	}
	c.waiting = slices.Insert(c.waiting, 0, passed...)
	return st
}

// grow gives s the cached blocks of hits and those that it needs to compute n more
// tokens, and publishes the blocks that this fills. It returns false and does
// nothing if the pool has not enough.
func (c *scheduler) grow(s *seq, hits []blockKey, n int) bool {
	bs := c.cfg.BlockSize
	need := (s.computed+n+bs-1)/bs - len(hits) - len(s.blocks)
	blocks, ok := c.pool.take(s.blocks, hits, max(need, 0))
	if !ok {
		return false
	}
	s.blocks = blocks
	s.stored = max(s.stored, len(hits))
	first := s.stored
	for ; s.stored < (s.computed+n)/bs; s.stored++ {
		c.pool.publish(s.blocks[s.stored], s.keys[s.stored])
	}
	c.pool.log.stored(s, first, s.stored, bs)
	return true
}

// preempt takes a running s back to the head of the queue, to be computed again.
func (c *scheduler) preempt(s *seq) {
	c.drop(s)
	s.state, s.computed, s.external = seqWaiting, 0, 0
	s.preempted++
	c.m.preempted++
	c.waiting = slices.Insert(c.waiting, 0, s)
}

func (st *step) add(s *seq, n int) {
	st.work = append(st.work, work{s: s, n: n})
	st.tokens += n
	st.slow = max(st.slow, s.slow)
	if n == 1 && s.computed >= s.prompt {
		st.decodeContext += float64(s.computed)
		return
	}
	st.prefill += n
	st.attention += float64(n) * (float64(s.computed) + float64(n-1)/2)
}

// complete ends a step: every sequence that has computed all its tokens gets
// the next one.
func (c *scheduler) complete(st step, now time.Time) {
	c.m.steps++
	c.m.iterationTokens.observe(float64(st.tokens))
	for _, w := range st.work {
		s := w.s
		if s.state != seqRunning {
			continue // aborted during the step
		}
		s.computed += w.n
		if s.computed < len(s.tokens) {
			continue
		}
		s.tokens = append(s.tokens, s.sample(s.produced))
		s.keys = appendKeys(s.keys, s.root, s.tokens, c.cfg.BlockSize)
		s.produced++
		if s.produced == 1 && c.cfg.FirstToken != nil {
			c.cfg.FirstToken(time.Duration(c.clock.at - s.came))
		}
		c.m.token(s, now)
		s.last = now
		if s.produced >= s.want {
			if s.pin {
				c.running = remove(c.running, s)
			} else {
				c.drop(s)
			}
			s.state, s.ended = seqFinished, now
			c.slots.touch(s.adapter)
			c.m.finish(s)
		}
		s.notify()
	}
	c.inform(now)
}
