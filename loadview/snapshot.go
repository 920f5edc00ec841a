package loadview

import (
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
)

// Status is one member in a Snapshot.
type Status struct {
	// Target is the member as a Choose at that instant would offer it.
	Target router.Target
	// Judged is the state that the member has by itself. It differs from Target.State
	// while the View panics (see [Config.PanicThreshold]) and offers the member all the
	// same.
	Judged router.State
	// Failures is the number of failures in a row that count towards a cool-down.
	Failures int
	// ReadyIn is the time until a Cooling or Tripped member may be Ready; 0: it
	// is Ready, or the time is not known.
	ReadyIn time.Duration
	// Limit is the number of requests in flight that the member was seen to take of one
	// model and account at once, by its refusals and the successes since; the least of
	// all. While it has as many, it is Full for these. 0: there is no such limit now.
	Limit int
	// QueuedKnown reports that Target.Load.Queued was reported, QueuedAge ago;
	// otherwise it is the mean of the others.
	QueuedKnown bool
	QueuedAge   time.Duration
	// Adapters is the model of the member's slots for LoRA adapters; nil: nothing is known of them.
	Adapters *adapters.State
	// Lacking are the names of models and adapters of which the member replied that it does not have them, within
	// the last minute.
	Lacking []string
	// ScrapeError is the error of the last scrape of the member's metrics page; nil:
	// there was none.
	ScrapeError error
}

// Snapshot returns every member in the order of Set. It takes no lock, so that a
// page of metrics never delays a Choose and never waits for one; each number is
// right for some instant during the call, not all for the same one. It changes
// nothing. The slice is the caller's.
func (v *View) Snapshot() []Status {
	r := v.roster.Load()
	now := v.now()
	var sum, known int64
	all := make([]Status, len(r.members))
	standings := make([]standing, len(r.members))
	var c census
	for i, m := range r.members {
		standings[i] = m.standingAt(now)
		c.add(standings[i], 1)
		t := r.targets[i]
		t.Load, t.State = m.loadNow(), m.stateAt(now)
		s := Status{Target: t, Judged: t.State, Failures: int(m.fails.Load()), ReadyIn: m.readyIn(now)}
		if now < time.Duration(m.leastTo.Load()) {
			s.Limit = toInt(m.least.Load())
		}
		if m.queueKnown(now) {
			s.QueuedKnown = true
			s.QueuedAge = max(now-time.Duration(m.reported.Load()), 0)
			sum += m.peers.beyond(m.queued.Load())
			known++
		}
		if e := m.trouble.Load(); e != nil {
			s.ScrapeError = *e
		}
		all[i] = s
	}
	slots := v.cfg.Load().Adapters
	for i := range all {
		if st, ok := slots.State(all[i].Target.ID); ok {
			all[i].Adapters = &st
		}
		all[i].Lacking = r.members[i].lacks.names(now)
	}
	panicking := c.panics(v.cfg.Load().PanicThreshold)
	mean := toInt(meanQueued(sum, known))
	for i, m := range r.members {
		if panicking && c.spares(standings[i]) {
			all[i].Target.State = m.stateIf(now, true)
		}
		if !all[i].QueuedKnown {
			all[i].Target.Load.Queued = mean + toInt(m.peers.inFlight())
		}
		all[i].Target.Load.Queued += m.handicap(now)
	}
	return all
}
