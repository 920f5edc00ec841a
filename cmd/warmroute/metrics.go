package main

import (
	"net/http"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/debugui"
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
}

func newMetrics() (*metrics, error) {
	c, err := prometheus.New(prometheus.Config{})
	if err != nil {
		return nil, err
	}
	m := &metrics{Collector: c, registry: prom.NewRegistry()}
	if err := m.registry.Register(c); err != nil {
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
	_ = m.WatchMemory("", s.memory)
	if s.sharing.node != nil {
		_ = m.WatchShare("", s.sharing.node)
	}
	if old != nil {
		for _, r := range old.Routes {
			_ = m.WatchPrecise(r.Model, nil)
			_ = m.WatchDisagg(r.Model, fleetName, nil)
		}
	}
	for _, r := range f.Routes {
		switch made := debugui.Unwrap(s.gateway.Strategy(r.Model)).(type) {
		case *precisecacheaware.Strategy:
			_ = m.WatchPrecise(r.Model, made.Stats)
		case interface{ Stats() trie.Stats }:
			_ = m.WatchTrie(r.Model, made.Stats)
		}
		if split := s.splitOf(r.Model); split != nil {
			_ = m.WatchDisagg(r.Model, fleetName, split)
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
