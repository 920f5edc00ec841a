package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Strategies of the gateway.
const (
	precise   = "precise_cache_aware"
	approx    = "cache_aware"
	leastWork = "least_work"
	// leastWorkEvents is least_work with the engines' events, which needs a file.
	leastWorkEvents = "least_work, with events"
	roundRobin      = "round_robin"
)

// study is one run.
type study struct {
	fleet     *fleet
	witnesses witnesses
	think     time.Duration // between a reply, or a later event, and the next request
	per       int           // conversations of a wave
	out       io.Writer

	requests []*exchange          // through precise_cache_aware, in order
	started  map[string]time.Time // when an engine was started again
	phases   []string             // in order
	misses   []miss
	tallies  map[string]*tally
	total    tally // with think time

	counted, mismatched int // by the gateways themselves

	legs         map[string]bool
	speculations []string // of the leg with it, as --speculative-config takes it
	drafts       []drafts // of each of them that was run
	times        map[string]*timing
}

type miss struct {
	x      *exchange
	cause  cause
	detail string
}

func newStudy(f *fleet, think time.Duration, per int, out io.Writer) (*study, error) {
	s := &study{fleet: f, think: think, per: per, out: out, started: make(map[string]time.Time),
		tallies: make(map[string]*tally)}
	for _, e := range f.engines {
		w, err := newWitness(e)
		if err != nil {
			return nil, err
		}
		s.witnesses = append(s.witnesses, w)
	}
	return s, nil
}

// watch runs the witnesses until ctx ends, and then returns.
func (s *study) watch(ctx context.Context) (wait func()) {
	done := make(chan struct{})
	for _, w := range s.witnesses {
		go func() {
			w.sub.Run(ctx)
			done <- struct{}{}
		}()
	}
	return func() {
		for range s.witnesses {
			<-done
		}
	}
}

// ask sends body with a think time before and after, and judges the prediction as
// one of phase.
func (s *study) ask(ctx context.Context, phase string, body []byte, think time.Duration) (*exchange, error) {
	p, err := s.fleet.page(ctx)
	if err != nil {
		return nil, err
	}
	x, err := send(ctx, s.fleet.url, body)
	if err != nil {
		return nil, err
	}
	w := s.witnesses.of(x.target)
	if w == nil {
		return nil, fmt.Errorf("a reply of an unknown target %q", x.target)
	}
	x.phase, x.live = phase, p.live(x.target)
	if think > 0 || x.judged() && !x.exact() { // else the cause is unknown
		if err := s.witnesses.quiet(ctx, x.end, max(think, 100*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	m := miss{x: x}
	if x.judged() && !x.exact() {
		if m.cause, m.detail, err = explain(x, w.arrivals(), s.requests, s.started[x.target]); err != nil {
			return nil, err
		}
		if s.recomputed(x, m.cause) {
			m.cause = causeLearned
		}
		s.misses = append(s.misses, m)
		say("  request %d: predicted %d, reported %d of %d tokens: %s (%s)", len(s.requests)+1, x.predicted, x.reported,
			len(x.tokens), m.cause, m.detail)
	}
	t := s.tallies[phase]
	if t == nil {
		t = &tally{}
		s.tallies[phase] = t
		s.phases = append(s.phases, phase)
	}
	t.add(x, m.cause)
	if x.target == s.witnesses[0].id {
		t.first++
	}
	if think > 0 && m.cause != causeLearned {
		s.total.add(x, m.cause)
		if x.target == s.witnesses[0].id {
			s.total.first++
		}
	}
	s.requests = append(s.requests, x)
	return x, s.witnesses.err()
}

// play sends the next n requests of w as they depend on the replies.
func (s *study) play(ctx context.Context, phase string, w *wave, n int) error {
	say("%s: %d requests", phase, n)
	for range n {
		body, err := w.body()
		if err != nil {
			return err
		}
		x, err := s.ask(ctx, phase, body, s.think)
		if err != nil {
			return fmt.Errorf("%s: %w", phase, err)
		}
		w.done(x.text)
	}
	return nil
}

// Names of the phases.
const (
	phaseChats   = "chats, with evictions"
	phaseGateway = "after the gateway was started again"
	phaseReset   = "after reset_prefix_cache on both"
	phaseDown    = "one engine killed"
	phaseUp      = "after that engine was started again"
	phaseHaste   = "the chats again, without the wait"
	phaseSpec    = "chats, with speculation: " // and its method
)

// exactness plays chats and everything that happens to a fleet, and returns the
// waves of the first phase.
func (s *study) exactness(ctx context.Context) ([]*wave, error) {
	if err := s.fleet.startGateway(ctx, precise); err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	var chats []*wave
	for i := range 3 {
		w := newWave(uint64(i+1), s.per)
		if err := s.play(ctx, phaseChats, w, w.left()); err != nil {
			return nil, err
		}
		chats = append(chats, w)
	}
	// Each of the others happens in the middle of chats.
	w := newWave(4, s.per)
	if err := s.play(ctx, phaseChats, w, w.left()/2); err != nil {
		return nil, err
	}
	if err := s.stopGateway(ctx); err != nil {
		return nil, err
	}
	if err := s.fleet.startGateway(ctx, precise); err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if err := s.play(ctx, phaseGateway, w, w.left()); err != nil {
		return nil, err
	}
	w = newWave(5, s.per)
	if err := s.play(ctx, phaseChats, w, w.left()/2); err != nil {
		return nil, err
	}
	if err := s.fleet.resetCaches(ctx, false); err != nil {
		return nil, err
	}
	if err := s.play(ctx, phaseReset, w, w.left()); err != nil {
		return nil, err
	}
	w = newWave(6, s.per)
	if err := s.play(ctx, phaseChats, w, w.left()/3); err != nil {
		return nil, err
	}
	victim := s.fleet.engines[0]
	if err := victim.p.kill(); err != nil {
		return nil, err
	}
	if err := s.play(ctx, phaseDown, w, w.left()/2); err != nil {
		return nil, err
	}
	s.started[victim.url()] = time.Now()
	if err := s.fleet.startEngine(victim); err != nil {
		return nil, err
	}
	if err := s.fleet.ready(ctx, victim); err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if err := s.play(ctx, phaseUp, w, w.left()); err != nil {
		return nil, err
	}
	// Those stay at the warm engine. New ones begin at the empty one.
	w = newWave(7, s.per)
	return chats, s.play(ctx, phaseUp, w, w.left())
}

// settle waits until the gateway has connected and caught up: until all of its
// streams have been live, or cold if an engine has sent nothing yet, for three
// seconds; at most half a minute.
func (s *study) settle(ctx context.Context) error {
	limit := time.Now().Add(30 * time.Second)
	for steady := 0; ; {
		if err := s.witnesses.quiet(ctx, time.Now(), time.Second); err != nil {
			return err
		}
		p, err := s.fleet.page(ctx)
		if err != nil {
			return err
		}
		steady++
		states := ""
		for _, w := range s.witnesses {
			state := p.state(w.id, w.name)
			if state != "live" && state != "cold" {
				steady = 0
			}
			states += " " + state
		}
		if steady == 3 || time.Now().After(limit) {
			say("the gateway's streams:%s", states)
			return nil
		}
	}
}

// stopGateway stops the gateway and adds its own counts.
func (s *study) stopGateway(ctx context.Context) error {
	if s.fleet.gateway != nil && s.fleet.strategy == precise {
		p, err := s.fleet.page(ctx)
		if err != nil {
			return err
		}
		s.counted += p.Precise.Judged
		s.mismatched += p.Precise.Mismatched
	}
	return s.fleet.stopGateway()
}

// fresh empties the caches and starts a new gateway.
func (s *study) fresh(ctx context.Context, strategy string) error {
	if err := s.stopGateway(ctx); err != nil {
		return err
	}
	if err := s.fleet.resetCaches(ctx, true); err != nil {
		return err
	}
	if err := s.fleet.startGateway(ctx, strategy); err != nil {
		return err
	}
	if strategy == precise || strategy == leastWorkEvents {
		return s.settle(ctx)
	}
	return nil
}

// again empties the caches and sends chats to a new gateway as they were recorded.
func (s *study) again(ctx context.Context, strategy, phase string, chats []*wave) (*tally, error) {
	if err := s.fresh(ctx, strategy); err != nil {
		return nil, err
	}
	say("%s: the same chats", strategy)
	var t tally
	for _, w := range chats {
		for _, b := range w.bodies {
			var x *exchange
			var err error
			if phase != "" {
				x, err = s.ask(ctx, phase, b, 0)
			} else {
				x, err = send(ctx, s.fleet.url, b)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", strategy, err)
			}
			t.add(x, "")
		}
	}
	return &t, nil
}

// run does all steps and prints the tables, the partial ones if a step fails.
// It returns an error if the predictions are not good enough.
func (s *study) run(ctx context.Context) (err error) {
	rows := [][]string{{"strategy", "requests", "tokens cached"}}
	defer func() {
		s.report(rows)
		if err == nil && (s.legs[legExact] || s.legs[legSpeculation]) && !s.total.enough() {
			err = errors.New("less than 99% of the predictions are exact")
		}
	}()
	if s.legs[legExact] {
		if rows, err = s.compare(ctx, rows); err != nil {
			return err
		}
	}
	if s.legs[legSpeculation] {
		for i, config := range s.speculations {
			if err := s.speculate(ctx, uint64(21+2*i), config); err != nil {
				return err
			}
		}
	}
	if s.legs[legTime] {
		if s.times, err = s.timed(ctx); err != nil {
			return err
		}
	}
	if s.legs[legDisagg] {
		if err := errors.Join(s.stopGateway(ctx), s.fleet.stopEngines()); err != nil {
			return err
		}
		return s.split(ctx)
	}
	return s.stopGateway(ctx)
}

// compare plays the chats, and then the recorded ones once more with each
// strategy, and adds a row for each to rows.
func (s *study) compare(ctx context.Context, rows [][]string) ([][]string, error) {
	chats, err := s.exactness(ctx)
	if err != nil {
		return rows, err
	}
	row := func(name string, t *tally) {
		rows = append(rows, []string{name, fmt.Sprint(t.requests), share(t.cached, t.tokens)})
	}
	var waited tally
	for _, x := range s.requests[:recorded(chats)] {
		waited.add(x, "")
	}
	row(precise+", with the wait", &waited)
	for _, r := range []struct{ strategy, phase, name string }{
		{precise, phaseHaste, precise + ", without it"}, {approx, "", approx}, {roundRobin, "", roundRobin},
	} {
		t, err := s.again(ctx, r.strategy, r.phase, chats)
		if err != nil {
			return rows, err
		}
		row(r.name, t)
	}
	return rows, nil
}

func recorded(chats []*wave) int {
	n := 0
	for _, w := range chats {
		n += len(w.bodies)
	}
	return n
}

func (s *study) report(comparison [][]string) {
	lines := [][]string{phaseHead}
	for _, p := range s.phases {
		if p != phaseHaste {
			lines = append(lines, s.tallies[p].row(p))
		}
	}
	lines = append(lines, s.total.row("all of these"))
	if t := s.tallies[phaseHaste]; t != nil {
		lines = append(lines, t.row(phaseHaste))
	}
	fmt.Fprintln(s.out)
	writeTable(s.out, lines)
	for _, p := range s.phases {
		t := s.tallies[p]
		for _, r := range slices.Sorted(maps.Keys(t.reasons)) {
			fmt.Fprintf(s.out, "- not judged, %s: %d with the reason %s\n", p, t.reasons[r], r)
		}
	}
	fmt.Fprintln(s.out)
	fmt.Fprintf(s.out, "The gateways themselves counted these as missed: %d of %d.\n", s.mismatched, s.counted)
	if len(s.misses) == 0 {
		fmt.Fprintln(s.out, "No prediction missed.")
	}
	for _, p := range s.phases {
		t := s.tallies[p]
		causes := slices.SortedFunc(maps.Keys(t.causes), func(a, b cause) int {
			return cmp.Or(cmp.Compare(t.causes[b], t.causes[a]), cmp.Compare(a, b))
		})
		for _, c := range causes {
			fmt.Fprintf(s.out, "- missed, %s: %d, %s\n", p, t.causes[c], c)
		}
	}
	for i, d := range s.drafts {
		fmt.Fprintf(s.out, "Speculation %s: %.0f tokens drafted, %.0f of them accepted.\n", s.speculations[i], d.drafted,
			d.accepted)
	}
	for _, lines := range [][][]string{comparison, timedRows(s.times)} {
		if len(lines) > 1 {
			fmt.Fprintln(s.out)
			writeTable(s.out, lines)
		}
	}
}
