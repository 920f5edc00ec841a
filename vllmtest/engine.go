package vllmtest

import (
	"sync"
	"time"
)

// engine runs a scheduler: one goroutine that takes the time of each step.
type engine struct {
	cfg *Config

	mu    sync.Mutex
	sched scheduler
	m     counters

	wake chan struct{} // something was submitted
	stop chan struct{}
	done chan struct{} // the goroutine has ended
}

// loseCache forgets the blocks that nobody uses.
func (e *engine) loseCache() {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.sched.pool
	for i := range p.size() {
		if p.blocks[i].refs == 0 {
			p.forget(int32(i))
		}
	}
}

// startEngine starts an engine. log publishes the changes of its cache; nil:
// nothing does.
func startEngine(cfg *Config, log *eventLog) *engine {
	e := &engine{
		cfg:  cfg,
		m:    newCounters(time.Now()),
		wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	e.sched = scheduler{cfg: cfg, pool: newPool(cfg.Blocks), m: &e.m}
	e.sched.pool.log = log
	go e.run()
	return e
}

// close ends the goroutine and waits for it. It is called once.
func (e *engine) close() {
	close(e.stop)
	<-e.done
}

func (e *engine) submit(s *seq) error {
	e.mu.Lock()
	err := e.sched.submit(s, time.Now())
	e.mu.Unlock()
	if err == nil {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
	return err
}

func (e *engine) abort(s *seq) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sched.abort(s)
}

// progress returns how many tokens s has, how many of its prompt's were cached,
// and whether it has ended.
func (e *engine) progress(s *seq) (produced, cached int, ended bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.produced, s.cached, s.state >= seqFinished
}

// maxLag bounds how late the engine may be before it stops catching up. Timers
// fire late by a good part of a short step; without catching up a small
// TimeScale would not be kept.
const maxLag = 20 * time.Millisecond

func (e *engine) run() {
	defer close(e.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	due := time.Now()
	for {
		now := time.Now()
		e.mu.Lock()
		st := e.sched.schedule(now)
		e.mu.Unlock()
		if len(st.work) == 0 {
			select {
			case <-e.wake:
			case <-e.stop:
				return
			}
			due = time.Now()
			continue
		}
		modelled := float64(e.cfg.Timing.cost(st.prefill, st.attention, st.decodeContext)) * st.slow
		modelled += float64(st.loads) * float64(e.cfg.LoadTime)
		cost := modelled * e.cfg.TimeScale
		e.mu.Lock()
		e.sched.clock.begin(now, modelled, e.cfg.TimeScale)
		e.mu.Unlock()
		if lag := now.Add(-maxLag); due.Before(lag) {
			due = lag
		}
		due = due.Add(time.Duration(min(cost, float64(24*time.Hour))))
		if d := due.Sub(now); d > 0 {
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-e.stop:
				return
			}
		} else {
			select {
			case <-e.stop:
				return
			default:
			}
		}
		e.mu.Lock()
		e.sched.pool.log.flush(time.Now()) // before anybody gets the reply
		e.sched.clock.end()
		e.sched.complete(st, time.Now())
		e.mu.Unlock()
	}
}

// reject counts a request that was refused before it could be submitted.
func (e *engine) reject() {
	e.mu.Lock()
	e.m.rejected++
	e.mu.Unlock()
}
