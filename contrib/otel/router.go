package otel

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/observe"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"
)

// The names of the events on spans.
const (
	EventDecision   = "warmroute.decision"    // a target was picked and counted
	EventNoTarget   = "warmroute.no_target"   // none was found
	EventFirstToken = "warmroute.first_token" // the first token of the reply was seen
	EventOutcome    = "warmroute.outcome"     // the attempt ended
	EventRetry      = "warmroute.retry"       // another target is looked for
)

// route is shared by the hooks of one Router.
type route struct {
	t                       *Telemetry
	strategy, fleet         string
	common                  []attribute.KeyValue // route and strategy
	genAI                   []attribute.KeyValue // and those of the conventions
	attrs                   metric.MeasurementOption
	provider                string
	usage                   observe.Usage
	usageInput, usageOutput attribute.Set
	genAISet                attribute.Set

	mu   sync.RWMutex
	made map[[2]pair]metric.MeasurementOption
}

// Router returns hooks for router.Options.Trace that count the Router's events, add
// events to the span of the request's context if it is recording, and call the hooks
// of next.
func (t *Telemetry) Router(r Route, next router.Trace) router.Trace {
	m := &route{t: t, strategy: t.strategies.Get(r.Strategy), fleet: t.fleets.Get(observe.Named(r.Fleet)),
		provider: observe.Clean(r.Provider),
		made:     make(map[[2]pair]metric.MeasurementOption)}
	m.common = []attribute.KeyValue{keyRoute.String(t.routes.Get(observe.Named(r.Name))), keyStrategy.String(m.strategy)}
	m.attrs = attrs(m.common...)
	m.genAI = []attribute.KeyValue{semconv.GenAIOperationNameKey.String(observe.Clean(cmp.Or(r.Operation, "chat")))}
	if r.Model != "" {
		m.genAI = append(m.genAI, semconv.GenAIRequestModel(observe.Clean(r.Model)))
	}
	if m.provider != "" {
		m.genAI = append(m.genAI, semconv.GenAIProviderNameKey.String(m.provider))
	}
	m.usageInput = attribute.NewSet(join(m.genAI, semconv.GenAITokenTypeKey.String(string(genaiconv.TokenTypeInput)))...)
	m.usageOutput = attribute.NewSet(join(m.genAI, semconv.GenAITokenTypeKey.String(string(genaiconv.TokenTypeOutput)))...)
	m.genAISet = attribute.NewSet(m.genAI...)
	m.begin()
	return router.Trace{
		Routed: func(ctx context.Context, i router.RouteInfo) {
			m.routed(ctx, i)
			if next.Routed != nil {
				next.Routed(ctx, i)
			}
		},
		NoTarget: func(ctx context.Context, p router.Prompt, err error) {
			cause := observe.NoTarget(err)
			t.noTarget.Add(ctx, 1, m.with(pair{keyCause, cause}, pair{}))
			m.event(ctx, EventNoTarget, keyCause.String(cause))
			if next.NoTarget != nil {
				next.NoTarget(ctx, p, err)
			}
		},
		FirstToken: func(ctx context.Context, d router.Decision) {
			m.event(ctx, EventFirstToken)
			if next.FirstToken != nil {
				next.FirstToken(ctx, d)
			}
		},
		Done: func(ctx context.Context, d router.Decision, o router.Outcome) {
			m.done(ctx, d, o)
			if next.Done != nil {
				next.Done(ctx, d, o)
			}
		},
		Retry: func(ctx context.Context, i router.RetryInfo) {
			cause := observe.Cause(i.Outcome)
			t.retries.Add(ctx, 1, m.with(pair{keyCause, cause}, pair{}))
			m.event(ctx, EventRetry, keyCause.String(cause), attribute.Int("warmroute.attempt", i.Attempt),
				seconds("warmroute.wait", i.Wait))
			if next.Retry != nil {
				next.Retry(ctx, i)
			}
		},
		Timed: func(ctx context.Context, i router.Timing) {
			m.timed(ctx, i)
			if next.Timed != nil {
				next.Timed(ctx, i)
			}
		},
	}
}

// begin makes the counters, so that they begin at 0. Histograms have no series before the first value.
func (m *route) begin() {
	t := m.t
	for _, c := range []metric.Int64Counter{t.spills, t.judged, t.predicted, t.reported, t.over, t.under} {
		c.Add(background, 0, m.attrs)
	}
	t.active.Add(background, 0, m.attrs)
	for _, r := range observe.Reasons(m.strategy) {
		t.picks.Add(background, 0, m.with(pair{keyReason, t.reasons.Get(observe.Reason(r))}, pair{}))
	}
	for _, e := range observe.Endings() {
		t.attempts.Add(background, 0, m.with(pair{keyOutcome, e.Outcome}, pair{keyCode, e.Code}))
	}
	for c, causes := range map[metric.Int64Counter][]string{
		t.retries: observe.Causes(), t.noTarget: observe.NoTargets(), t.fallbacks: observe.Fallbacks(m.strategy),
	} {
		for _, cause := range causes {
			c.Add(background, 0, m.with(pair{keyCause, cause}, pair{}))
		}
	}
}

// timed records the times of a request. Those of the conventions are for routes with a provider, and are of one
// request to an engine: the wait for a target and the attempts that failed before are not in them.
func (m *route) timed(ctx context.Context, i router.Timing) {
	switch o := &i.Outcome; {
	case o.Stage == router.FirstToken:
		reason := m.t.reasons.Get(observe.Reason(i.Decision.Reason))
		m.t.firstToken.Record(ctx, i.Request.Seconds(), m.with(pair{keyReason, reason}, pair{}))
	case o.Stage.Final():
		if v, ok := observe.Speed(i); ok {
			m.t.speed.Record(ctx, v, m.attrs)
		}
		if m.provider == "" {
			return
		}
		set := m.genAISet
		if o.Stage == router.Failed {
			set = attribute.NewSet(join(m.genAI, errorType(*o))...)
		}
		m.t.duration.RecordSet(ctx, i.Took.Seconds(), set)
		if o.Streamed && i.Reply > 0 {
			m.t.firstChunk.RecordSet(ctx, (i.Took - i.Reply).Seconds(), m.genAISet)
		}
	}
}

// errorType returns the attribute of an attempt that failed.
func errorType(o router.Outcome) attribute.KeyValue {
	if cause := observe.Cause(o); cause != observe.Other {
		return semconv.ErrorTypeKey.String(cause)
	}
	return semconv.ErrorTypeOther
}

func join(a []attribute.KeyValue, b ...attribute.KeyValue) []attribute.KeyValue {
	return append(a[:len(a):len(a)], b...)
}

// pair is an attribute of a word; the zero pair is none.
type pair struct {
	key   attribute.Key
	value string
}

// with returns the common attributes, a and b. As their values are bounded, so is
// its memory.
func (m *route) with(a, b pair) metric.MeasurementOption {
	key := [2]pair{a, b}
	m.mu.RLock()
	o := m.made[key]
	m.mu.RUnlock()
	if o != nil {
		return o
	}
	kv := join(m.common)
	for _, p := range key {
		if p.key != "" {
			kv = append(kv, p.key.String(p.value))
		}
	}
	o = attrs(kv...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[key] = o
	return o
}

func seconds(key string, d time.Duration) attribute.KeyValue {
	return attribute.Float64(key, d.Seconds())
}

// event adds an event to the span of ctx, if it is recording.
func (m *route) event(ctx context.Context, name string, kv ...attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name, trace.WithAttributes(kv...))
	}
}

func (m *route) routed(ctx context.Context, i router.RouteInfo) {
	d := &i.Decision
	reason := m.t.reasons.Get(observe.Reason(d.Reason))
	m.t.active.Add(ctx, 1, m.attrs)
	m.t.took.Record(ctx, i.Took.Seconds(), m.attrs)
	m.t.picks.Add(ctx, 1, m.with(pair{keyReason, reason}, pair{}))
	share, ok := observe.Share(*d)
	if ok {
		m.t.share.Record(ctx, share, m.attrs)
	}
	if observe.Spill(d.Reason) {
		m.t.spills.Add(ctx, 1, m.attrs)
	}
	cause := observe.Fallback(m.strategy, d.Reason)
	if cause != "" {
		m.t.fallbacks.Add(ctx, 1, m.with(pair{keyCause, cause}, pair{}))
	}
	if !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	kv := join(m.common, m.genAI...)
	kv = append(kv, keyReason.String(reason), keyFleet.String(m.fleet),
		keyTarget.String(m.t.targets.Get(m.fleet, d.Target.ID)),
		attribute.Int("warmroute.attempt", i.Attempt), attribute.Int("warmroute.cached",
			d.Cached), attribute.Int("warmroute.length", d.Length),
		attribute.String("warmroute.unit", d.Unit.String()), seconds("warmroute.pick.duration", i.Took))
	if ok {
		kv = append(kv, attribute.Float64("warmroute.predicted_cached_ratio", share))
	}
	if cause != "" {
		kv = append(kv, keyCause.String(cause))
	}
	if l := d.Target.Load; l.Known {
		kv = append(kv, attribute.Int("warmroute.target.in_flight", l.InFlight),
			attribute.Int("warmroute.target.queued", l.Queued),
			attribute.Int("warmroute.target.prefill", l.Prefill))
	}
	m.event(ctx, EventDecision, kv...)
}

func (m *route) done(ctx context.Context, d router.Decision, o router.Outcome) {
	outcome := observe.Stage(o.Stage)
	m.t.active.Add(ctx, -1, m.attrs)
	m.t.attempts.Add(ctx, 1, m.with(pair{keyOutcome, outcome}, pair{keyCode, observe.Code(o.Status)}))
	if o.PromptTokens > 0 && m.provider != "" {
		m.t.instruments.usage.RecordSet(ctx, int64(o.PromptTokens), m.usageInput)
		m.t.instruments.usage.RecordSet(ctx, int64(o.OutputTokens), m.usageOutput)
	}
	predicted, reported, judged := m.usage.Judge(d, o)
	if judged {
		m.t.judged.Add(ctx, int64(o.PromptTokens), m.attrs)
		m.t.predicted.Add(ctx, int64(predicted), m.attrs)
		m.t.reported.Add(ctx, int64(reported), m.attrs)
		m.t.over.Add(ctx, int64(max(predicted-reported, 0)), m.attrs)
		m.t.under.Add(ctx, int64(max(reported-predicted, 0)), m.attrs)
	}
	if !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	kv := []attribute.KeyValue{keyOutcome.String(outcome)}
	if o.Stage == router.Failed {
		kv = append(kv, errorType(o))
	}
	if o.Status >= 100 && o.Status <= 599 {
		kv = append(kv, semconv.HTTPResponseStatusCode(o.Status))
	}
	if o.PromptTokens > 0 {
		kv = append(kv, semconv.GenAIUsageInputTokens(o.PromptTokens), semconv.GenAIUsageOutputTokens(o.OutputTokens))
		if o.CachedTokens > 0 {
			kv = append(kv, semconv.GenAIUsageCacheReadInputTokens(o.CachedTokens))
		}
	}
	if judged {
		kv = append(kv, attribute.Int("warmroute.tokens.predicted_cached", predicted))
	}
	m.event(ctx, EventOutcome, kv...)
}
