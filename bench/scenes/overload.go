package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/strategy/leastload"
)

// overload is one scene: clients in a closed loop on engines with places, first at 0.9 times what fits, then at over
// times, then at 0.9 again. Two smaller groups of clients use another model and another key at the same engines, which
// have places of their own.
type overload struct {
	kind    string
	policy  string
	over    float64
	seed    uint64
	engines int
	before  time.Duration // at 0.9, after a second that does not count
	during  time.Duration
	after   time.Duration
}

// overloaded is the result of an overload.
type overloaded struct {
	goodput  float64 // during the overload, over that before it
	recovery float64 // seconds from its end until goodput stays at nine tenths of that before; -1: it does not
	others   float64 // share of the other clients' requests that failed in the overload
	slower   float64 // the mean time of the others' requests in the overload over that before it
	tries    float64 // attempts at engines for each served request in the overload
}

const below = 0.9

// healthPolicies are the rules of health that are compared, over least_load and the same retries.
var healthPolicies = []string{"warmroute", lineKnown, lineLearned, "envoy_outliers", "smg_breakers", "llmd_saturation",
	"none"}

// The policies that are "warmroute" with a waiting line in front: with as many places for each engine as it has, and
// with those that an engine is seen to have. Keys are the tenants.
const (
	lineKnown   = "warmroute, line"
	lineLearned = "warmroute, line, places unknown"
)

// parties are the clients' models and keys; the first is the one in overload.
var parties = []router.Prompt{
	{Model: "m", Account: "k"}, {Model: "other", Account: "k"}, {Model: "m", Account: "other"},
}

// othersEach is how many clients each other party has.
const othersEach = 6

// site is the world with its engines, router and clients.
type site struct {
	world
	scene  *overload
	engine [][]*pool // by number and party
	router *router.Router
	opts   router.Options
	line   *sim.Line // nil: there is none
	looks  time.Duration
	busy   tally
	others tally
	wanted int // clients of the first party
	live   int
	tries  int

	changes router.ChangeNotifier // the fleet, if it is one
	changed <-chan struct{}
	waiting []func() // requests that wait for a change
}

// tally is what became of requests.
type tally struct {
	served, failed int
	took           time.Duration
	each           []int // served, by tenths of a second
}

func (t *tally) add(now, took time.Duration, err bool) {
	if err {
		t.failed++
		return
	}
	t.served++
	t.took += took
	for n := int(now / (100 * time.Millisecond)); len(t.each) <= n; {
		t.each = append(t.each, 0)
	}
	t.each[len(t.each)-1]++
}

// run plays the scene.
func (o overload) run() (overloaded, error) {
	s := &site{scene: &o, world: world{rand: rand.New(rand.NewPCG(o.seed, 5))}}
	for i := range o.engines {
		k, ok := kindOf(o.kind, i)
		if !ok {
			return overloaded{}, fmt.Errorf("scenes: no engines of kind %q", o.kind)
		}
		var pools []*pool
		for range parties {
			if k.shared && len(pools) > 0 {
				pools = append(pools, pools[0])
				continue
			}
			pools = append(pools, &pool{world: &s.world, kind: k})
		}
		s.engine = append(s.engine, pools)
	}
	f, err := s.fleet(o.policy)
	if err != nil {
		return overloaded{}, err
	}
	if c, ok := f.(router.ChangeNotifier); ok {
		s.changes, s.changed = c, c.Changed()
	}
	l, err := leastload.New(leastload.Config{Rand: s.rand.Uint64})
	if err != nil {
		return overloaded{}, err
	}
	s.opts = router.Options{Rand: s.rand.Uint64}.WithDefaults()
	if line, ok := lineOf(o.policy); ok {
		if s.line, err = sim.NewLine(line, s.time); err != nil {
			return overloaded{}, err
		}
		s.opts.Queue = s.line
	}
	s.router = router.New(l, f, s.opts)
	fits := float64(places * o.engines)
	for party := 1; party < len(parties); party++ {
		for range othersEach {
			s.after(seconds(s.between(0, 0.2)), func() { s.client(party) })
		}
	}
	s.want(int(below * fits))
	s.runUntil(time.Second)
	s.busy, s.others = tally{}, tally{}
	s.runUntil(s.now + o.before)
	before, othersBefore := s.busy, s.others

	s.busy, s.others, s.tries = tally{}, tally{}, 0
	s.want(int(o.over * fits))
	s.runUntil(s.now + o.during)
	during, othersDuring, tries := s.busy, s.others, s.tries

	s.busy = tally{}
	s.wanted = int(below * fits)
	end := s.now
	s.runUntil(s.now + o.after)
	was := float64(before.served) / o.before.Seconds()
	return overloaded{
		goodput:  float64(during.served) / o.during.Seconds() / was,
		recovery: s.busy.recovered(end, s.now, was),
		others:   float64(othersDuring.failed) / float64(max(othersDuring.failed+othersDuring.served, 1)),
		slower:   othersDuring.mean() / othersBefore.mean(),
		tries:    float64(tries) / float64(max(during.served, 1)),
	}, nil
}

// lineOf returns the settings of a policy's line, if it has one.
func lineOf(policy string) (c admission.Config, ok bool) {
	switch policy {
	case lineKnown:
		c.Requests = places
	case lineLearned:
	default:
		return c, false
	}
	c.Class = func(_ context.Context, p router.Prompt) admission.Class { return admission.Class{Tenant: p.Account} }
	return c, true
}

// time is virtual time.
func (s *site) time() time.Time { return begin.Add(s.now) }

func (t *tally) mean() float64 { return t.took.Seconds() / float64(max(t.served, 1)) }

// recovered returns the seconds after from from which on each second until to has nine tenths of was, less the
// deviation that chance alone gives to a count.
func (t *tally) recovered(from, to time.Duration, was float64) float64 {
	const tenth = 100 * time.Millisecond
	first, last := int(from/tenth), int(to/tenth)
	for len(t.each) < last {
		t.each = append(t.each, 0)
	}
	ok := last
	for k := last - 10; k >= first; k-- {
		sum := 0
		for _, n := range t.each[k : k+10] {
			sum += n
		}
		if float64(sum) < 0.9*was-math.Sqrt(was) {
			break
		}
		ok = k
	}
	if ok == last {
		return -1
	}
	return float64(ok-first) / 10
}

// want adds clients until there are n.
func (s *site) want(n int) {
	s.wanted = n
	for ; s.live < n; s.live++ {
		s.after(seconds(s.between(0, 0.05)), func() { s.client(0) })
	}
}

// client sends one request after the other.
func (s *site) client(party int) {
	began := s.now
	s.attempt(party, 1, nil, 0, func(err bool) {
		if party == 0 {
			s.busy.add(s.now, s.now-began, err)
			if s.live > s.wanted {
				s.live--
				return
			}
		} else {
			s.others.add(s.now, s.now-began, err)
		}
		wait := 0.0
		switch {
		case err:
			wait = s.between(0.01, 0.03)
		case party > 0:
			wait = s.between(0.1, 0.3)
		}
		s.after(seconds(wait), func() { s.client(party) })
	})
}

// attempt sends a request as Router.Do would, and calls done at its end.
func (s *site) attempt(party, n int, exclude []string, until time.Duration, done func(failed bool)) {
	p := parties[party]
	if s.line != nil {
		s.line.Route(s.router, p, exclude, func(l *router.Lease, err error) {
			s.routed(l, err, party, n, exclude, until, done)
		})
		s.settle(false)
		return
	}
	l, err := s.router.Route(context.Background(), p, exclude...)
	s.routed(l, err, party, n, exclude, until, done)
}

// settle serves the line.
func (s *site) settle(due bool) {
	again, ok := s.line.Settle(due)
	if !ok || again.IsZero() {
		return
	}
	if at := again.Sub(begin); s.looks <= s.now || at < s.looks {
		s.looks = at
		s.after(at-s.now, func() { s.settle(s.now == at) })
	}
}

// routed sends a request to the engine that Route has chosen.
func (s *site) routed(l *router.Lease, err error, party, n int, exclude []string, until time.Duration,
	done func(failed bool)) {
	p := parties[party]
	if err != nil {
		if !s.waits(until, err, func() { s.attempt(party, n, exclude, until, done) }) {
			done(true)
		}
		return
	}
	i := l.Decision().Target.Ref.(int)
	if party == 0 {
		s.tries++
	}
	c := &call{size: meanWork * s.between(0.5, 1.5), token: func() { l.FirstToken(); s.wake() }}
	c.end = func(o router.Outcome) {
		l.Done(o)
		s.wake()
		if o.Stage == router.Finished || c.first || n >= s.opts.Attempts || !o.Retryable() {
			done(o.Stage != router.Finished)
			return
		}
		exclude, until := append(slices.Clip(exclude), l.Decision().Target.ID), time.Duration(0)
		wait := s.opts.Backoff << (n - 1)
		wait = wait/2 + seconds(s.between(0, wait.Seconds()/2))
		if asked := min(o.RetryAfter, s.opts.MaxRetryAfter); asked > wait && s.onlyLater(p, exclude) {
			until = s.now + asked
			if s.changes == nil {
				wait = asked
			}
		}
		s.after(wait, func() { s.attempt(party, n+1, exclude, until, done) })
	}
	s.engine[i][party].take(c)
}

// waits has again called when a target may be Ready, until until, as a Router does; false: not at all.
func (s *site) waits(until time.Duration, err error, again func()) bool {
	if s.changes == nil || s.now >= until {
		return false
	}
	woken := false
	once := func() {
		if !woken {
			woken = true
			again()
		}
	}
	s.waiting = append(s.waiting, once)
	wait := until - s.now
	var none *router.NoTargetError
	if errors.As(err, &none) && none.RetryAfter > 0 {
		wait = min(wait, max(none.RetryAfter, time.Millisecond))
	}
	s.after(wait, once)
	return true
}

// wake calls those that wait if the fleet has changed.
func (s *site) wake() {
	if s.line != nil {
		s.after(0, func() { s.settle(false) })
	}
	if s.changes == nil {
		return
	}
	select {
	case <-s.changed:
	default:
		return
	}
	s.changed = s.changes.Changed()
	waiting := s.waiting
	s.waiting = nil
	s.rand.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	for _, again := range waiting {
		again()
	}
}

// onlyLater reports whether there are replicas that were not tried, and none of them is ready.
func (s *site) onlyLater(p router.Prompt, exclude []string) bool {
	all, err := s.router.Explain(context.Background(), p)
	left := 0
	for _, c := range all {
		if !slices.Contains(exclude, c.Target.ID) {
			left++
			if c.Target.State == router.Ready {
				return false
			}
		}
	}
	return err == nil && left > 0
}
