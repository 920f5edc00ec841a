package main

import (
	"time"

	"github.com/warmroute/router"
)

// pool is the part of an engine that serves one model and key: places requests at once.
type pool struct {
	world   *world
	kind    kind
	running int
	waiting []*call

	// Of a pool that slows down: each of its requests has received work since it came.
	calls []*call
	work  float64 // that one request would have received since the beginning, seconds
	at    time.Duration
	epoch int
}

// kind is what an engine does with requests beyond its places.
type kind struct {
	name       string
	status     int           // it refuses them with this status; 0: it does not
	retryAfter time.Duration // of a refusal
	queue      int           // so many wait; less than 0: any number
	slows      bool          // all share the throughput of the places
	shared     bool          // the places are for all models and keys together
}

var kinds = []kind{
	{name: "503", status: 503},
	{name: "503, Retry-After 1 s", status: 503, retryAfter: time.Second},
	{name: "503, places for all", status: 503, shared: true},
	{name: "429", status: 429},
	{name: "429, Retry-After 5 s", status: 429, retryAfter: 5 * time.Second},
	{name: "queue of 8, then 503", status: 503, queue: places},
	{name: "queue", queue: -1},
	{name: "slows down", slows: true},
}

// mixedName is the name of a fleet of which the engines are of four kinds in turn.
const mixedName = "mixed"

// kindOf returns the kind of engine i in a fleet called name.
func kindOf(name string, i int) (k kind, ok bool) {
	if name == mixedName {
		return kinds[[]int{0, 4, 6, 7}[i%4]], true
	}
	for _, k := range kinds {
		if k.name == name {
			return k, true
		}
	}
	return k, false
}

// call is one attempt at a pool.
type call struct {
	pool  *pool
	size  float64 // its work, seconds
	came  float64 // pool.work
	first bool
	over  bool
	token func()               // at its first token
	end   func(router.Outcome) // at its end
}

const (
	places     = 8
	meanWork   = 0.2 // seconds
	firstShare = 0.2 // of the work, before the first token
	// refuses is how long a refusal takes.
	refuses = time.Millisecond
	// patience is how long an attempt waits for its first token.
	patience = 4 * time.Duration(meanWork*float64(time.Second))
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// take starts c, or refuses it.
func (p *pool) take(c *call) {
	w := p.world
	c.pool = p
	switch {
	case p.kind.slows:
		p.advance()
		c.came = p.work
		p.calls = append(p.calls, c)
		p.next()
	case p.running < places:
		p.start(c)
	case p.kind.queue < 0 || len(p.waiting) < p.kind.queue:
		p.waiting = append(p.waiting, c)
	default:
		w.after(refuses, func() {
			c.finish(router.Outcome{Stage: router.Failed, Status: p.kind.status, RetryAfter: p.kind.retryAfter})
		})
		return
	}
	w.after(patience, func() {
		if !c.first && !c.over {
			p.cancel(c)
			c.finish(router.Outcome{Stage: router.Failed, Err: router.ErrAttemptTimeout})
		}
	})
}

func (c *call) finish(o router.Outcome) {
	c.over = true
	c.end(o)
}

func (c *call) sawToken() {
	if !c.first {
		c.first = true
		c.token()
	}
}

func (p *pool) start(c *call) {
	p.running++
	p.world.after(seconds(firstShare*c.size), func() {
		if !c.over {
			c.sawToken()
		}
	})
	p.world.after(seconds(c.size), func() {
		if c.over {
			return
		}
		p.leave()
		c.finish(router.Outcome{Stage: router.Finished, Status: 200})
	})
}

// leave frees a place.
func (p *pool) leave() {
	p.running--
	if len(p.waiting) > 0 {
		c := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.start(c)
	}
}

// cancel takes c out.
func (p *pool) cancel(c *call) {
	for i, o := range p.waiting {
		if o == c {
			p.waiting = append(p.waiting[:i:i], p.waiting[i+1:]...)
			return
		}
	}
	if p.kind.slows {
		p.advance()
		p.drop(c)
		p.next()
		return
	}
	p.leave()
}

func (p *pool) drop(c *call) {
	for i, o := range p.calls {
		if o == c {
			p.calls = append(p.calls[:i:i], p.calls[i+1:]...)
			return
		}
	}
}

// rate is how fast each request of a pool that slows down is served.
func (p *pool) rate() float64 { return min(1, places/float64(max(len(p.calls), 1))) }

// advance brings the work up to now.
func (p *pool) advance() {
	p.work += p.rate() * (p.world.now - p.at).Seconds()
	p.at = p.world.now
}

// next waits for the next first token or end.
func (p *pool) next() {
	p.epoch++
	if len(p.calls) == 0 {
		return
	}
	least := -1.0
	for _, c := range p.calls {
		left := c.came + c.size - p.work
		if !c.first {
			left -= (1 - firstShare) * c.size
		}
		if least < 0 || left < least {
			least = max(left, 0)
		}
	}
	epoch := p.epoch
	p.world.after(seconds(least/p.rate())+1, func() {
		if p.epoch == epoch {
			p.step()
		}
	})
}

// step ends the calls that are done.
func (p *pool) step() {
	p.advance()
	var done []*call
	for _, c := range p.calls {
		switch got := p.work - c.came; {
		case got >= c.size:
			done = append(done, c)
		case got >= firstShare*c.size:
			c.sawToken()
		}
	}
	for _, c := range done {
		p.drop(c)
	}
	p.next()
	for _, c := range done {
		c.finish(router.Outcome{Stage: router.Finished, Status: 200})
	}
}

// depth is the number of requests that wait.
func (p *pool) depth() int {
	if p.kind.slows {
		return max(len(p.calls)-places, 0)
	}
	return len(p.waiting)
}
