package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/observe"
)

// metricsPath answers with the gateway's own numbers for Prometheus. The engines have theirs at their addresses.
const metricsPath = "/metrics"

// metrics counts by the names of contrib/prometheus, which is a module with dependencies of its own. The zero value
// works.
type metrics struct{ counts sync.Map } // of *atomic.Int64, by series

// series is one line of the page. The labels are words of package observe, and routes are the file's.
type series struct{ name, route, label, value, code string }

func (m *metrics) add(s series) {
	n, ok := m.counts.Load(s)
	if !ok {
		n, _ = m.counts.LoadOrStore(s, new(atomic.Int64))
	}
	if n, ok := n.(*atomic.Int64); ok {
		n.Add(1)
	}
}

// trace returns the hooks of a route, which call those of next.
func (m *metrics) trace(route string, next router.Trace) router.Trace {
	t := next
	t.Routed = func(ctx context.Context, i router.RouteInfo) {
		m.add(series{"picks_total", route, "reason", observe.Reason(i.Decision.Reason), ""})
		if next.Routed != nil {
			next.Routed(ctx, i)
		}
	}
	t.NoTarget = func(ctx context.Context, p router.Prompt, err error) {
		m.add(series{"no_target_total", route, "cause", observe.NoTarget(err), ""})
		if next.NoTarget != nil {
			next.NoTarget(ctx, p, err)
		}
	}
	t.Done = func(ctx context.Context, d router.Decision, o router.Outcome) {
		m.add(series{"attempts_total", route, "outcome", observe.Stage(o.Stage), observe.Code(o.Status)})
		if next.Done != nil {
			next.Done(ctx, d, o)
		}
	}
	t.Retry = func(ctx context.Context, i router.RetryInfo) {
		m.add(series{"retries_total", route, "cause", observe.Cause(i.Outcome), ""})
		if next.Retry != nil {
			next.Retry(ctx, i)
		}
	}
	return t
}

// help are the counters and what they count.
var help = map[string]string{
	"disagg_prefills_total": "Prompts computed by a prefill target, and attempts at it that failed.",
	"disagg_skipped_total":  "Requests with prompts that the decode target computed too, by the reason.",
	"disagg_blocks_lost_total": "Prompts computed by a prefill target that no decode target fetched: those of requests " +
		"that ended before (stranded), and those held too long to be sent again (expired).",
	"picks_total":     "Targets picked, first attempts and further ones, by the reason.",
	"no_target_total": "Requests for a target that found none, by the cause.",
	"attempts_total":  "Attempts that ended, by how and by the class of the HTTP status.",
	"retries_total":   "Attempts that failed before the first token and are made again elsewhere, by the cause.",
}

// write writes the counters.
func (m *metrics) write(b *bytes.Buffer, strategies map[string]string) {
	type line struct {
		series
		n int64
	}
	var lines []line
	m.counts.Range(func(k, v any) bool {
		s, ok := k.(series)
		n, counts := v.(*atomic.Int64)
		if ok && counts {
			lines = append(lines, line{s, n.Load()})
		}
		return true
	})
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.route, b.route), cmp.Compare(a.value, b.value),
			cmp.Compare(a.code, b.code))
	})
	for i, l := range lines {
		if i == 0 || lines[i-1].name != l.name {
			head(b, l.name, "counter", help[l.name])
		}
		labels := []string{l.label, l.value, "route", l.route, "strategy", strategies[l.route]}
		if l.code != "" {
			labels = append(labels, "code", l.code)
		}
		sample(b, l.name, float64(l.n), labels...)
	}
}

func head(b *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP warmroute_%s %s\n# TYPE warmroute_%s %s\n", name, help, name, kind)
}

// sample writes one line. labels are names and values in turn; those without a value are left out.
func sample(b *bytes.Buffer, name string, v float64, labels ...string) {
	b.WriteString("warmroute_" + name)
	sep := "{"
	for i := 0; i < len(labels); i += 2 {
		if labels[i+1] == "" {
			continue
		}
		b.WriteString(sep + labels[i] + `="` + escapes.Replace(strings.ToValidUTF8(labels[i+1], "?")) + `"`)
		sep = ","
	}
	if sep == "," {
		b.WriteByte('}')
	}
	b.WriteString(" " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// metrics returns the page.
func (h *Handler) metrics() []byte {
	var b bytes.Buffer
	s := h.cfg.service
	strategies := make(map[string]string)
	for _, r := range s.gateway.File().Routes {
		strategies[r.Model] = r.Strategy
	}
	s.metrics.write(&b, strategies)
	one := func(name, kind, help string, v float64) {
		head(&b, name, kind, help)
		sample(&b, name, v)
	}
	s.waits.write(&b, s.gateway.Queue())
	one("gateway_requests", "gauge", "Requests that are being served.", float64(h.Active()))
	one("gateway_body_bytes", "gauge", "Bytes of request bodies and of their texts that are in memory.",
		float64(h.bodies.Used()))
	one("gateway_reconnects_total", "counter", "Requests sent once more because a kept connection was closed.",
		float64(h.reconnects.Load()))

	one("fleet_panics", "gauge", "Routes in which nobody is excluded by failures, because most targets would be.",
		float64(s.panics.Load()))

	members := s.gateway.View().Snapshot()
	states := make(map[string]int)
	for _, m := range members {
		states[observe.State(m.Target.State)]++
	}
	head(&b, "targets", "gauge", "Targets of the fleet in a state.")
	for _, st := range slices.Sorted(maps.Keys(states)) {
		sample(&b, "targets", float64(states[st]), "state", st)
	}
	for _, g := range []struct {
		name, help string
		value      func(loadview.Status) float64 // less than 0: none
	}{
		{"target_ready", "1 if the target is ready, else 0.", func(m loadview.Status) float64 {
			if m.Target.State == router.Ready {
				return 1
			}
			return 0
		}},
		{"target_in_flight", "Requests that this process sent to the target and has not seen finish.",
			func(m loadview.Status) float64 { return float64(m.Target.Load.InFlight) }},
		{"target_queued", "Further requests at the target's engine, as last reported.",
			func(m loadview.Status) float64 { return float64(m.Target.Load.Queued) }},
		{"target_prefill_tokens", "Tokens that this process sent to the target and that wait for prefill.",
			func(m loadview.Status) float64 { return float64(m.Target.Load.Prefill) }},
		{"target_limit",
			"Requests that the target was seen to take at once of one model and account, by its refusals; none: no limit.",
			func(m loadview.Status) float64 {
				if m.Limit == 0 {
					return -1
				}
				return float64(m.Limit)
			}},
	} {
		head(&b, g.name, "gauge", g.help)
		sums, order := make(map[string]float64), []string(nil) // targets of one name on the page are one series
		for _, m := range members {
			v := g.value(m)
			if v < 0 {
				continue
			}
			id := observe.Target(m.Target.ID)
			if _, seen := sums[id]; !seen {
				order = append(order, id)
			}
			sums[id] += v
		}
		for _, id := range order {
			sample(&b, g.name, sums[id], "target", id)
		}
	}
	return b.Bytes()
}

// serveMetrics answers a request for the page.
func (h *Handler) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if !readOnly(w, r) {
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(h.metrics()) // the client may be gone
}

// readOnly reports whether r only reads, and refuses it otherwise.
func readOnly(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	w.WriteHeader(http.StatusMethodNotAllowed)
	return false
}
