package sim

import (
	"slices"
)

// naive is the engine again, one step at a time, with lists that are searched.
type naive struct {
	cal     Calibration
	costs   costs
	refs    []int
	content []uint64 // 0: nothing that can be found
	free    []int    // next to be taken first
	cpu     []uint64 // next to go first
	waiting []*naiveSeq
	running []*naiveSeq
	preempt int
}

type naiveSeq struct {
	id, prompt, output int
	arrive             instant
	hashes             []uint64
	have, made, target int
	named              int
	decode             bool
	blocks             []int
	cached, loaded     int
	met                bool
	first, end         instant
}

func newNaive(cal Calibration) *naive {
	n := &naive{cal: cal, costs: cal.costs(1), refs: make([]int, cal.Blocks), content: make([]uint64, cal.Blocks)}
	for i := range cal.Blocks {
		n.free = append(n.free, i)
	}
	return n
}

func (n *naive) find(h uint64) int { return slices.Index(n.content, h) }

func (n *naive) take() int {
	i := n.free[0]
	n.free = n.free[1:]
	if h := n.content[i]; h != 0 && n.cal.CPUBlocks > 0 {
		n.cpuPut(h)
	}
	n.content[i] = 0
	n.refs[i] = 1
	return i
}

func (n *naive) cpuPut(h uint64) {
	if k := slices.Index(n.cpu, h); k >= 0 {
		n.cpu = slices.Delete(n.cpu, k, k+1)
	}
	n.cpu = append(n.cpu, h)
	if len(n.cpu) > n.cal.CPUBlocks {
		n.cpu = n.cpu[1:]
	}
}

func (n *naive) release(s *naiveSeq) {
	for _, b := range slices.Backward(s.blocks) {
		n.refs[b]--
		if n.refs[b] > 0 {
			continue
		}
		if n.content[b] == 0 {
			n.free = slices.Insert(n.free, 0, b)
		} else {
			n.free = append(n.free, b)
		}
	}
	s.blocks = nil
}

// name makes what s has computed findable, up to have tokens. Each block has one
// chance: where its content can be found elsewhere at that time, it stays unnamed.
func (n *naive) name(s *naiveSeq) {
	for ; s.named < len(s.hashes) && (s.named+1)*n.cal.BlockSize <= s.have; s.named++ {
		if n.find(s.hashes[s.named]) < 0 {
			n.content[s.blocks[s.named]] = s.hashes[s.named]
		}
	}
}

func (n *naive) admit(s *naiveSeq) (load int, ok bool) {
	size := n.cal.BlockSize
	var at []int
	taken := 0 // free blocks that are among the hits
	for k := 0; k < len(s.hashes) && (k+1)*size <= s.target-1; k++ {
		i := n.find(s.hashes[k])
		if i < 0 && !slices.Contains(n.cpu, s.hashes[k]) {
			break
		}
		if i >= 0 && n.refs[i] == 0 {
			taken++
		}
		at = append(at, i)
	}
	total := (s.target + size - 1) / size
	onDevice := 0
	for _, i := range at {
		if i >= 0 {
			onDevice++
		}
	}
	if total-onDevice > len(n.free)-taken {
		return 0, false
	}
	for _, i := range at {
		if i >= 0 {
			if n.refs[i] == 0 {
				n.free = slices.DeleteFunc(n.free, func(f int) bool { return f == i })
			}
			n.refs[i]++
		}
	}
	for k, i := range at {
		if i < 0 {
			n.cpuPut(s.hashes[k])
		}
	}
	for k, i := range at {
		if i < 0 {
			i = n.take()
			n.content[i] = s.hashes[k]
			load += size
		}
		s.blocks = append(s.blocks, i)
	}
	for len(s.blocks) < total {
		s.blocks = append(s.blocks, n.take())
	}
	s.have, s.named = len(at)*size, len(at)
	if !s.met {
		s.met, s.cached, s.loaded = true, s.have, load
	}
	return load, true
}

// step begins a step and returns how long it takes; 0: there is nothing to do.
func (n *naive) step() instant {
	preempted := false
	for i := 0; i < len(n.running); i++ {
		s := n.running[i]
		if !s.decode || s.have < len(s.blocks)*n.cal.BlockSize {
			continue
		}
		gone := false
		for len(n.free) == 0 && !gone {
			last := n.running[len(n.running)-1]
			n.running = n.running[:len(n.running)-1]
			n.release(last)
			last.have, last.decode, last.target = 0, false, last.prompt+last.made
			n.waiting = slices.Insert(n.waiting, 0, last)
			n.preempt++
			preempted = true
			gone = last == s
		}
		if !gone {
			s.blocks = append(s.blocks, n.take())
		}
	}
	budget := n.cal.StepTokens
	cost := n.costs.step
	for _, s := range n.running {
		if s.decode {
			budget--
			cost += n.costs.sequence + n.costs.context*instant(s.have+1)
		}
	}
	compute := func(s *naiveSeq) {
		for budget > 0 && s.have < s.target {
			s.have++
			budget--
			cost += n.costs.prefill + n.costs.attention*instant(s.have)
		}
		n.name(s)
	}
	for _, s := range n.running {
		if !s.decode {
			compute(s)
		}
	}
	for !preempted && budget > 0 && len(n.waiting) > 0 && len(n.running) < n.cal.Sequences {
		s := n.waiting[0]
		load, ok := n.admit(s)
		if !ok {
			break
		}
		n.waiting = n.waiting[1:]
		n.running = append(n.running, s)
		cost += n.costs.load * instant(load)
		compute(s)
	}
	if len(n.running) == 0 {
		return 0
	}
	return cost
}

// end ends the step.
func (n *naive) end(now instant) {
	for _, s := range n.running {
		if s.decode {
			s.have++
			s.made++
			n.name(s)
		} else if s.have == s.target {
			s.decode = true
			s.made++
			if s.made == 1 {
				s.first = now
			}
		}
	}
	var rest []*naiveSeq
	var done []*naiveSeq
	for _, s := range n.running {
		if s.made >= s.output {
			s.end = now
			done = append(done, s)
		} else {
			rest = append(rest, s)
		}
	}
	n.running = rest
	for _, s := range done {
		n.release(s)
	}
}

// run takes all requests, in order of arrival, to their end.
func (n *naive) run(all []*naiveSeq) {
	now := instant(0)
	for {
		for len(all) > 0 && all[0].arrive <= now {
			all[0].target = all[0].prompt
			n.waiting = append(n.waiting, all[0])
			all = all[1:]
		}
		d := n.step()
		if d == 0 {
			if len(all) == 0 {
				return
			}
			now = all[0].arrive
			continue
		}
		// What arrives meanwhile waits for the end, except that the step began
		// without it.
		now += d
		n.end(now)
	}
}
