package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/trie"
)

// metricsPath answers with the gateway's own numbers for Prometheus. The engines have theirs at their addresses.
const metricsPath = "/metrics"

// fleetName is the name of the gateway's only fleet.
const fleetName = "default"

// metrics are the numbers of a gateway: those of contrib/prometheus, and the gateway's own. Make them with newMetrics.
type metrics struct {
	*prometheus.Collector
	registry *prom.Registry
	page     http.Handler

	prefills, skipped, lost *prom.CounterVec
}

func newMetrics() (*metrics, error) {
	c, err := prometheus.New(prometheus.Config{})
	if err != nil {
		return nil, err
	}
	m := &metrics{Collector: c, registry: prom.NewRegistry()}
	counter := func(name, help, label string) *prom.CounterVec {
		v := prom.NewCounterVec(prom.CounterOpts{Namespace: "warmroute", Name: name, Help: help},
			[]string{"route", label})
		err = errors.Join(err, m.registry.Register(v))
		return v
	}
	m.prefills = counter("disagg_prefills_total",
		"Prompts computed by a prefill target, and attempts at it that failed.", "outcome")
	m.skipped = counter("disagg_skipped_total",
		"Requests with prompts that the decode target computed too, by the reason.", "reason")
	m.lost = counter("disagg_blocks_lost_total",
		"Prompts computed by a prefill target that no decode target fetched: those of requests that ended before "+
			"(stranded), and those held too long to be sent again (expired).", "cause")
	if err = errors.Join(err, m.registry.Register(c)); err != nil {
		return nil, err
	}
	m.page = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m, nil
}

// route returns the hooks of a route, which call those of next.
func (m *metrics) route(r *file.Route, next router.Trace) router.Trace {
	return m.Router(prometheus.Route{Name: r.Model, Strategy: r.Strategy, Fleet: fleetName}, next)
}

// fleet returns the hooks of the fleet.
func (m *metrics) fleet() loadview.Trace { return m.Fleet(fleetName, loadview.Trace{}) }

// lmcache returns the hooks of the LMCaches' poller.
func (m *metrics) lmcache() lmcache.Trace { return m.LMCache(fleetName, lmcache.Trace{}) }

// watch reads the numbers of s, which has the file f in place, whenever the page is asked for. Those of routes that
// old had, and f has not, are read no more.
func (m *metrics) watch(s *service, f, old *file.File) {
	// There are fewer than a thousand of each kind, so nothing fails.
	_ = m.WatchFleet(fleetName, s.gateway.View())
	_ = m.WatchIndex("", s.gateway.Index())
	_ = m.WatchLMCache(fleetName, s.gateway.LMCache())
	_ = m.WatchQueue("", s.gateway.Queue())
	if s.sharing.node != nil {
		_ = m.WatchShare("", s.sharing.node)
	}
	if old != nil {
		for _, r := range old.Routes {
			_ = m.WatchPrecise(r.Model, nil)
		}
	}
	for _, r := range f.Routes {
		switch made := debugui.Unwrap(s.gateway.Strategy(r.Model)).(type) {
		case *precisecacheaware.Strategy:
			_ = m.WatchPrecise(r.Model, made.Stats)
		case interface{ Stats() trie.Stats }:
			_ = m.WatchTrie(r.Model, made.Stats)
		}
	}
}

// handler adds the numbers of h, if it is the first.
func (m *metrics) handler(h *Handler) {
	gauge := func(name, help string, value func() float64) {
		_ = m.registry.Register(prom.NewGaugeFunc(
			prom.GaugeOpts{Namespace: "warmroute", Name: name, Help: help}, value))
	}
	gauge("gateway_requests", "Requests that are being served.", func() float64 { return float64(h.Active()) })
	gauge("gateway_body_bytes", "Bytes of request bodies and of their texts that are in memory.",
		func() float64 { return float64(h.bodies.Used()) })
	_ = m.registry.Register(prom.NewCounterFunc(prom.CounterOpts{
		Namespace: "warmroute", Name: "gateway_reconnects_total",
		Help: "Requests sent once more because a kept connection was closed.",
	}, func() float64 { return float64(h.reconnects.Load()) }))
}

// disagg returns the hooks that count what becomes of a route's prompts.
func (m *metrics) disagg(route string) disagg.Trace {
	return disagg.Trace{
		Skipped: func(_ context.Context, _ router.Decision, why disagg.Skip) {
			m.skipped.WithLabelValues(route, string(why)).Inc()
		},
		Prefilled: func(context.Context, router.Decision, router.Decision, time.Duration) {
			m.prefills.WithLabelValues(route, "finished").Inc()
		},
		PrefillFailed: func(context.Context, router.Decision, router.Outcome) {
			m.prefills.WithLabelValues(route, "failed").Inc()
		},
		Expired:  func(router.Decision) { m.lost.WithLabelValues(route, "expired").Inc() },
		Stranded: func(context.Context, router.Decision) { m.lost.WithLabelValues(route, "stranded").Inc() },
	}
}

// serveMetrics answers a request for the page.
func (h *Handler) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if !readOnly(w, r) {
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	h.cfg.service.metrics.page.ServeHTTP(w, r)
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
