package prometheus

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/warmroute/router"
	"github.com/warmroute/router/observe"
)

type routerMetrics struct {
	picks, spills, fallbacks, targetPicks, attempts, retries, noTarget *prometheus.CounterVec
	judged, predicted, reported, over, under                           *prometheus.CounterVec
	prompted, output                                                   *prometheus.CounterVec
	inFlight                                                           *prometheus.GaugeVec
	took, share, firstToken, duration, speed                           *prometheus.HistogramVec
}

func (m *routerMetrics) init(c *Collector) {
	m.picks = c.counter("picks_total", "Targets picked, first attempts and further ones, by the reason.", "route",
		"strategy", "reason")
	m.spills = c.counter("spills_total",
		"Picks that left a warm target, or a prompt's own place, because it was overloaded.", "route", "strategy")
	m.fallbacks = c.counter("fallbacks_total",
		"Picks that a strategy could not make by the cache it is made for, by the cause.", "route", "strategy", "cause")
	m.targetPicks = c.counter("target_picks_total", "Picks of a target.", "fleet", "target")
	m.took = c.histogram("pick_duration_seconds",
		"Time from the call to the counted choice, the wait for the fleet's lock included.",
		[]float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 1e-2, 1e-1}, "route", "strategy")
	m.share = c.histogram("predicted_cached_ratio",
		"Leading share of the prompt believed cached at the target that was picked; empty prompts have none.",
		[]float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, 1}, "route", "strategy")
	m.inFlight = c.gauge("attempts_in_flight", "Attempts that were picked and have not ended.", "route", "strategy")
	m.attempts = c.counter("attempts_total", "Attempts that ended, by how and by the class of the HTTP status.", "route",
		"strategy", "outcome", "code")
	m.retries = c.counter("retries_total",
		"Attempts that failed before the first token and are made again elsewhere, by the cause.", "route", "strategy",
		"cause")
	m.noTarget = c.counter("no_target_total", "Requests for a target that found none, by the cause.", "route",
		"strategy", "cause")
	m.firstToken = c.histogram("time_to_first_token_seconds",
		"Time from the call that asked for a target to the first token, waits and failed attempts included, by the reason.",
		observe.FirstTokenBounds, "route", "strategy", "reason")
	m.duration = c.histogram("request_duration_seconds",
		"Time from the call that asked for a target to the end of the reply, of requests that finished.",
		observe.DurationBounds, "route", "strategy")
	m.speed = c.histogram("output_tokens_per_second",
		"Output tokens a second of replies that were streamed and finished, from the first token to the end.",
		observe.SpeedBounds, "route", "strategy")
	m.prompted = c.counter("prompt_tokens_total", "Tokens of prompts, as engines reported them.", "route", "strategy")
	m.output = c.counter("output_tokens_total", "Tokens of replies, as engines reported them.", "route", "strategy")
	m.judged = c.counter("judged_prompt_tokens_total",
		"Tokens of prompts with both predicted and reported cached tokens.", "route", "strategy")
	m.predicted = c.counter("predicted_cached_tokens_total",
		"Tokens of judged prompts that were predicted to be cached.", "route", "strategy")
	m.reported = c.counter("reported_cached_tokens_total", "Tokens of judged prompts that engines reported as cached.",
		"route", "strategy")
	m.over = c.counter("overpredicted_cached_tokens_total",
		"Tokens of judged prompts that were predicted to be cached and were not.", "route", "strategy")
	m.under = c.counter("underpredicted_cached_tokens_total",
		"Tokens of judged prompts that were cached and not predicted to be.", "route", "strategy")
}

// routeMetrics are those of one route, looked up once.
type routeMetrics struct {
	c                                        *Collector
	route, strategy, fleet                   string
	usage                                    observe.Usage
	inFlight                                 prometheus.Gauge
	took, share, duration, speed             prometheus.Observer
	spills                                   prometheus.Counter
	judged, predicted, reported, over, under prometheus.Counter
	prompted, output                         prometheus.Counter

	mu       sync.Mutex
	byReason atomic.Pointer[map[router.Reason]byReason] // written again
}

// byReason are the series of one reason.
type byReason struct {
	picks      prometheus.Counter
	firstToken prometheus.Observer
}

// Router returns hooks for router.Options.Trace that count the Router's events and
// call those of next. Hooks of the same route add up.
func (c *Collector) Router(r Route, next router.Trace) router.Trace {
	m := &routeMetrics{c: c, route: c.routes.Get(observe.Named(r.Name)), strategy: c.strategies.Get(r.Strategy),
		fleet: c.fleets.Get(observe.Named(r.Fleet))}
	m.inFlight = c.routerMetrics.inFlight.WithLabelValues(m.route, m.strategy)
	m.took = c.took.WithLabelValues(m.route, m.strategy)
	m.share = c.share.WithLabelValues(m.route, m.strategy)
	m.spills = c.spills.WithLabelValues(m.route, m.strategy)
	m.judged = c.judged.WithLabelValues(m.route, m.strategy)
	m.predicted = c.predicted.WithLabelValues(m.route, m.strategy)
	m.reported = c.reported.WithLabelValues(m.route, m.strategy)
	m.over = c.over.WithLabelValues(m.route, m.strategy)
	m.under = c.under.WithLabelValues(m.route, m.strategy)
	m.duration = c.duration.WithLabelValues(m.route, m.strategy)
	m.speed = c.speed.WithLabelValues(m.route, m.strategy)
	m.prompted = c.prompted.WithLabelValues(m.route, m.strategy)
	m.output = c.output.WithLabelValues(m.route, m.strategy)
	m.byReason.Store(new(map[router.Reason]byReason))
	// Series that begin at 0, so that the first one is an increase.
	for _, reason := range observe.Reasons(m.strategy) {
		m.of(reason)
	}
	for _, cause := range observe.Fallbacks(m.strategy) {
		c.fallbacks.WithLabelValues(m.route, m.strategy, cause)
	}
	for _, e := range observe.Endings() {
		c.attempts.WithLabelValues(m.route, m.strategy, e.Outcome, e.Code)
	}
	for _, cause := range observe.Causes() {
		c.retries.WithLabelValues(m.route, m.strategy, cause)
	}
	for _, cause := range observe.NoTargets() {
		c.noTarget.WithLabelValues(m.route, m.strategy, cause)
	}
	return router.Trace{
		Routed: func(ctx context.Context, i router.RouteInfo) {
			m.routed(i)
			if next.Routed != nil {
				next.Routed(ctx, i)
			}
		},
		NoTarget: func(ctx context.Context, p router.Prompt, err error) {
			c.noTarget.WithLabelValues(m.route, m.strategy, observe.NoTarget(err)).Inc()
			if next.NoTarget != nil {
				next.NoTarget(ctx, p, err)
			}
		},
		FirstToken: next.FirstToken,
		Done: func(ctx context.Context, d router.Decision, o router.Outcome) {
			m.done(d, o)
			if next.Done != nil {
				next.Done(ctx, d, o)
			}
		},
		Retry: func(ctx context.Context, i router.RetryInfo) {
			c.retries.WithLabelValues(m.route, m.strategy, observe.Cause(i.Outcome)).Inc()
			if next.Retry != nil {
				next.Retry(ctx, i)
			}
		},
		Timed: func(ctx context.Context, t router.Timing) {
			m.timed(t)
			if next.Timed != nil {
				next.Timed(ctx, t)
			}
		},
	}
}

func (m *routeMetrics) routed(i router.RouteInfo) {
	d := &i.Decision
	m.inFlight.Inc()
	m.took.Observe(i.Took.Seconds())
	if share, ok := observe.Share(*d); ok {
		m.share.Observe(share)
	}
	m.of(d.Reason).picks.Inc()
	if observe.Spill(d.Reason) {
		m.spills.Inc()
	}
	if cause := observe.Fallback(m.strategy, d.Reason); cause != "" {
		m.c.fallbacks.WithLabelValues(m.route, m.strategy, cause).Inc()
	}
	m.c.targetPicks.WithLabelValues(m.fleet, m.c.targets.Get(m.fleet, d.Target.ID)).Inc()
}

// of returns the series of a reason.
func (m *routeMetrics) of(r router.Reason) byReason {
	known := *m.byReason.Load()
	if p, ok := known[r]; ok {
		return p
	}
	name := m.c.reasons.Get(observe.Reason(r))
	p := byReason{m.c.picks.WithLabelValues(m.route, m.strategy, name),
		m.c.firstToken.WithLabelValues(m.route, m.strategy, name)}
	if len(known) >= 2*DefaultMaxReasons {
		return p // a strategy that makes reasons up
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[router.Reason]byReason, len(known)+1)
	for k, v := range *m.byReason.Load() {
		next[k] = v
	}
	next[r] = p
	m.byReason.Store(&next)
	return p
}

func (m *routeMetrics) done(d router.Decision, o router.Outcome) {
	m.inFlight.Dec()
	m.c.attempts.WithLabelValues(m.route, m.strategy, observe.Stage(o.Stage), observe.Code(o.Status)).Inc()
	m.prompted.Add(float64(max(o.PromptTokens, 0)))
	m.output.Add(float64(max(o.OutputTokens, 0)))
	predicted, reported, ok := m.usage.Judge(d, o)
	if !ok {
		return
	}
	m.judged.Add(float64(o.PromptTokens))
	m.predicted.Add(float64(predicted))
	m.reported.Add(float64(reported))
	m.over.Add(float64(max(predicted-reported, 0)))
	m.under.Add(float64(max(reported-predicted, 0)))
}

func (m *routeMetrics) timed(t router.Timing) {
	switch t.Outcome.Stage {
	case router.FirstToken:
		m.of(t.Decision.Reason).firstToken.Observe(t.Request.Seconds())
	case router.Finished:
		m.duration.Observe(t.Request.Seconds())
		if v, ok := observe.Speed(t); ok {
			m.speed.Observe(v)
		}
	}
}
