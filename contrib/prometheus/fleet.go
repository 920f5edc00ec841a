package prometheus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/warmroute/router"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/observe"
)

type fleetMetrics struct {
	changes, joined, left, losses, scrapeFailures, polls *prometheus.CounterVec
	pollTook                                             *prometheus.HistogramVec
	panics                                               *prometheus.GaugeVec
}

func (m *fleetMetrics) init(c *Collector) {
	m.changes = c.counter("target_state_changes_total", "Changes of a target's state, by the state that was entered.",
		"fleet", "target", "state")
	m.joined = c.counter("targets_joined_total", "Targets that joined the fleet.", "fleet")
	m.left = c.counter("targets_left_total", "Targets that left the fleet.", "fleet")
	m.losses = c.counter("cache_losses_total",
		"Times that a target left, restarted or was reported to have lost its cache.", "fleet")
	m.scrapeFailures = c.counter("scrape_failures_total",
		"Times that the scrapes of a target's metrics page began to fail.", "fleet")
	m.panics = c.gauge("fleet_panics",
		"Routes in which nobody is excluded by failures, because most targets would be.", "fleet")
	m.polls = c.counter("lmcache_polls_total", "Polls of LMCaches, by the result.", "fleet", "result")
	m.pollTook = c.histogram("lmcache_poll_duration_seconds", "Time that a poll of an LMCache took.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}, "fleet")
}

// Fleet returns hooks for loadview.Config.Trace that count the changes of the
// members of the fleet with this name and call those of next.
func (c *Collector) Fleet(fleet string, next loadview.Trace) loadview.Trace {
	fleet = c.fleets.Get(observe.Named(fleet))
	joined, left := c.joined.WithLabelValues(fleet), c.left.WithLabelValues(fleet)
	losses, failures := c.losses.WithLabelValues(fleet), c.scrapeFailures.WithLabelValues(fleet)
	t := next
	t.StateChanged = func(id string, from, to router.State) {
		c.changes.WithLabelValues(fleet, c.targets.Get(fleet, id), observe.State(to)).Inc()
		if next.StateChanged != nil {
			next.StateChanged(id, from, to)
		}
	}
	t.Joined = func(m loadview.Member) {
		joined.Inc()
		c.born(fleet, m.ID)
		if next.Joined != nil {
			next.Joined(m)
		}
	}
	t.Left = func(id string, inFlight int) {
		left.Inc()
		c.drop(fleet, func(other string) bool { return other == id })
		if next.Left != nil {
			next.Left(id, inFlight)
		}
	}
	t.Forget = func(id string) {
		losses.Inc()
		if next.Forget != nil {
			next.Forget(id)
		}
	}
	panics := c.panics.WithLabelValues(fleet)
	t.PanicChanged = func(v *loadview.View, on bool) {
		if on {
			panics.Inc()
		} else {
			panics.Dec()
		}
		if next.PanicChanged != nil {
			next.PanicChanged(v, on)
		}
	}
	t.ScrapeChanged = func(id string, err error) {
		if err != nil {
			failures.Inc()
		}
		if next.ScrapeChanged != nil {
			next.ScrapeChanged(id, err)
		}
	}
	return t
}

// LMCache returns hooks for lmcache.Config.Trace that count the polls and call
// those of next.
func (c *Collector) LMCache(fleet string, next lmcache.Trace) lmcache.Trace {
	fleet = c.fleets.Get(observe.Named(fleet))
	ok, failed := c.polls.WithLabelValues(fleet, "ok"), c.polls.WithLabelValues(fleet, "failed")
	duration := c.pollTook.WithLabelValues(fleet)
	t := next
	t.Polled = func(id string, took time.Duration, err error) {
		if err != nil {
			failed.Inc()
		} else {
			ok.Inc()
		}
		duration.Observe(took.Seconds())
		if next.Polled != nil {
			next.Polled(id, took, err)
		}
	}
	return t
}

// born makes the counters of a target, so that they begin at 0.
func (c *Collector) born(fleet, id string) {
	t := c.targets.Get(fleet, id)
	c.targetPicks.WithLabelValues(fleet, t)
	for _, s := range observe.States() {
		c.changes.WithLabelValues(fleet, t, s)
	}
}

// drop ends the series of targets of a fleet that are gone.
func (c *Collector) drop(fleet string, gone func(id string) bool) {
	for _, name := range c.targets.Drop(fleet, gone) {
		l := prometheus.Labels{"fleet": fleet, "target": name}
		for _, v := range []*prometheus.CounterVec{c.targetPicks, c.changes, c.gaps, c.missing, c.malformed, c.replays} {
			v.DeletePartialMatch(l)
		}
		c.lag.DeletePartialMatch(l)
	}
}
