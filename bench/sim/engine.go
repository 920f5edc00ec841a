package sim

// engine is one replica. Its simplifications against a real one:
//
//   - A prompt is admitted when all its blocks are there, not chunk by chunk.
//   - Blocks that a chunk fills can be found from the beginning of its step on,
//     as in vLLM: a request admitted later in the same step already shares
//     them.
//   - A reply's first token is seen at the end of the step that computes the last
//     of the prompt. There is no network, no tokenizer and no detokenizer.
//   - Blocks that are loaded from CPU memory are there at the end of the step in
//     which their request is admitted; the step takes longer by that.
//
// Steps that only decode are simulated many at a time. Their times, the blocks
// they take and the blocks that become findable equal those of single steps to the
// last bit. A request that arrives meanwhile cuts the row at the end of the
// current step.
type engine struct {
	cal   *Calibration
	costs costs // of the steps to come
	pool  *pool

	waiting queue
	running []*seq // oldest admission first
	alive   bool

	// The row of steps that is under way.
	busy   bool
	start  instant
	end    instant
	steps  int
	decode bool    // they are steps of decode alone
	taken  costs   // the values that they were computed from
	grants []grant // blocks that these steps take and name
	epoch  uint32  // changes with every new end

	single bool // never more than one step at a time: for tests

	// Sums for the result.
	busyTime  instant
	preempted int
	prefilled int // prompt tokens computed, again after a preemption too
	decoded   int // tokens of output made by decode steps

	finished func(*seq)
	first    func(*seq)

	slots  int      // for adapters; 0: they cost nothing
	loaded []string // adapters, the least recently used first
	loads  int
	toLoad instant // the time of a load
}

// seq is one attempt of a request at one engine.
type seq struct {
	req     int32
	adapter string
	hashes  []uint64
	ids     []uint32 // tokens of prompt and output, if events report them
	prompt  int
	output  int // tokens to make
	made    int // tokens made so far
	have    int // tokens with computed KV
	target  int // tokens to compute before it decodes
	decode  bool
	named   int // leading blocks that were made findable
	blocks  []int32
	cached  int  // tokens found at the first admission
	loaded  int  // of these, in CPU memory
	met     bool // was admitted before
	pre     bool // it computes the prompt for another replica
	handed  bool // another replica has computed the prompt, all but the last token
}

func newEngine(cal *Calibration, speed float64) *engine {
	return &engine{cal: cal, costs: cal.costs(speed), pool: newPool(cal.Blocks, cal.CPUBlocks), alive: true}
}

// fits reports whether a request of this size can ever run.
func (e *engine) fits(prompt, output int) bool {
	return prompt+output <= e.cal.Blocks*e.cal.BlockSize
}

// queued is the number of requests at the engine.
func (e *engine) queued() int { return e.waiting.len() + len(e.running) }

// submit puts s into the queue at now.
func (e *engine) submit(now instant, s *seq) {
	s.target = s.prompt
	blocked := e.waiting.len() > 0
	e.waiting.push(s)
	switch {
	case !e.busy:
		e.schedule(now)
	case e.decode && e.steps > 1 && (!blocked || e.slots > 0) && len(e.running) < e.cal.Sequences:
		// It may be admitted at the end of the step that is under way.
		e.cut(now)
	}
}

// schedule starts the next step, or row of them, at now.
func (e *engine) schedule(now instant) {
	e.busy = false
	preempted := e.reserve()
	budget := e.cal.StepTokens
	var cost instant
	decodes, context := 0, 0
	for _, s := range e.running {
		if s.decode {
			decodes++
			context += s.have + 1
			budget--
		}
	}
	prefills := 0
	chunk := func(s *seq) {
		n := min(s.target-s.have, budget)
		if n <= 0 {
			return
		}
		cost += e.costs.prefillTime(n, s.have)
		budget -= n
		s.have += n
		e.prefilled += n
		prefills++
		e.nameFull(s)
	}
	for _, s := range e.running {
		if !s.decode {
			chunk(s)
		}
	}
	var passed []*seq // they wait for a slot
	for !preempted && budget > 0 && e.waiting.len() > 0 && len(e.running) < e.cal.Sequences {
		s := e.waiting.front()
		if !e.slotFor(s) {
			e.waiting.pop()
			passed = append(passed, s)
			continue
		}
		load, ok := e.admit(s)
		if !ok {
			break
		}
		e.waiting.pop()
		cost += e.use(s)
		e.running = append(e.running, s)
		cost += e.costs.load * instant(load)
		chunk(s)
	}
	for i := len(passed) - 1; i >= 0; i-- {
		e.waiting.unpop(passed[i])
	}
	if len(e.running) == 0 {
		return
	}
	e.busy, e.start, e.decode, e.steps = true, now, prefills == 0, 1
	e.taken = e.costs
	e.epoch++
	e.grants = e.grants[:0]
	if e.decode {
		if !e.single && !preempted {
			e.steps = e.row()
		}
		n, tokens := e.decoding()
		e.end = now + e.costs.decode(e.steps, n, tokens)
		return
	}
	cost += e.costs.step + e.costs.sequence*instant(decodes) + e.costs.context*instant(context)
	e.end = now + cost
}

// reserve makes space for one more token of every decoding request. It preempts
// the youngest if necessary, and reports whether it did.
func (e *engine) reserve() (preempted bool) {
	for i := 0; i < len(e.running); i++ {
		s := e.running[i]
		if !s.decode || s.have < len(s.blocks)*e.cal.BlockSize {
			continue
		}
		for e.pool.free == 0 {
			last := len(e.running) - 1
			e.preempt(last)
			preempted = true
			if last == i {
				return true
			}
		}
		s.blocks = append(s.blocks, e.pool.take())
	}
	return preempted
}

// preempt puts running[i], which is the youngest, back to the head of the queue.
// Its tokens are computed again when it is scheduled.
func (e *engine) preempt(i int) {
	s := e.running[i]
	e.running = e.running[:i]
	e.release(s)
	s.have, s.named, s.decode = 0, 0, false
	s.target = s.prompt + s.made
	e.waiting.unpop(s)
	e.preempted++
}

func (e *engine) release(s *seq) {
	e.pool.drop(s.blocks)
	s.blocks = s.blocks[:0]
}

// admit gives s its blocks, those that hold its beginning among them, and reports
// the tokens to load, or that there are too few blocks.
func (e *engine) admit(s *seq) (load int, ok bool) {
	size := e.cal.BlockSize
	usable := min((s.target-1)/size, len(s.hashes))
	hit, loads, free := e.pool.match(s.hashes[:usable])
	need := (s.target+size-1)/size - (hit - loads)
	if need > e.pool.free-free {
		return 0, false
	}
	// First reference the cached blocks, then allocate: allocating may evict them.
	for len(s.blocks) < hit {
		i, ok := e.pool.byHash[s.hashes[len(s.blocks)]]
		if !ok {
			i = none // to be loaded
		} else {
			e.pool.share(i)
		}
		s.blocks = append(s.blocks, i)
	}
	for k, i := range s.blocks {
		if i == none {
			// Refreshed before anything is pushed out behind it.
			e.pool.cpu.put(s.hashes[k])
		}
	}
	for k, i := range s.blocks {
		if i == none {
			s.blocks[k] = e.pool.take()
			e.name(s, k)
		}
	}
	for len(s.blocks)*size < s.target {
		s.blocks = append(s.blocks, e.pool.take())
	}
	s.have, s.named = hit*size, hit
	if s.handed && !s.met { // after a preemption it is computed
		s.have = max(s.have, s.target-1)
	}
	if !s.met {
		s.met, s.cached, s.loaded = true, hit*size, loads*size
	}
	return loads * size, true
}

// nameFull makes the blocks that s has filled findable.
func (e *engine) nameFull(s *seq) {
	for n := min(s.have/e.cal.BlockSize, len(s.hashes)); s.named < n; s.named++ {
		e.name(s, s.named)
	}
}

// finish ends the step, or row of them, that ends at now, and starts the next.
func (e *engine) finish(now instant) {
	e.busyTime += now - e.start
	if e.decode {
		e.advance(e.steps)
	} else {
		e.advanceMixed()
	}
	// Callbacks may submit to this engine: it is busy until they are through.
	kept := e.running[:0]
	var done []*seq
	for _, s := range e.running {
		if s.made >= s.output {
			done = append(done, s)
		} else {
			kept = append(kept, s)
		}
	}
	clear(e.running[len(kept):])
	e.running = kept
	for _, s := range done {
		e.release(s)
		e.touch(s)
	}
	e.decode = false
	for _, s := range done {
		e.finished(s)
	}
	e.schedule(now)
}

// advanceMixed applies a step that also computed prompts; these already have
// their blocks.
func (e *engine) advanceMixed() {
	for _, s := range e.running {
		switch {
		case s.decode:
			s.have++
			s.made++
			e.decoded++
			e.nameFull(s)
		case s.have == s.target:
			s.decode = true
			s.made++
			if s.made == 1 {
				e.first(s)
			}
		}
	}
}

// kill empties the engine, with its cache, and returns its requests.
func (e *engine) kill(now instant) []*seq {
	if e.busy {
		e.busyTime += now - e.start
	}
	var lost []*seq
	for _, s := range e.running {
		e.release(s)
		lost = append(lost, s)
	}
	e.running = e.running[:0]
	for e.waiting.len() > 0 {
		lost = append(lost, e.waiting.front())
		e.waiting.pop()
	}
	e.pool.clear()
	e.loaded = nil
	e.alive, e.busy = false, false
	e.epoch++
	return lost
}

// slow changes the speed from the end of the step that is under way on.
func (e *engine) slow(now instant, speed float64, cal *Calibration) {
	if e.busy && e.decode && e.steps > 1 {
		e.cut(now)
	}
	e.costs = cal.costs(speed)
}
