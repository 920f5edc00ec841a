package prometheus_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// A router, its fleet and its strategy on one page.
func Example() {
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		log.Fatal(err)
	}
	registry := prom.NewRegistry()
	registry.MustRegister(metrics)
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	strategy, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		log.Fatal(err)
	}
	fleet, err := loadview.New(loadview.Config{Trace: metrics.Fleet("", loadview.Trace{})})
	if err != nil {
		log.Fatal(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		log.Fatal(err)
	}
	r := router.New(strategy, fleet, router.Options{
		Trace: metrics.Router(prometheus.Route{Name: "llama", Strategy: cacheaware.Name}, router.Trace{}),
	})
	if err := metrics.WatchFleet("", fleet); err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchTrie("llama", strategy.Stats); err != nil {
		log.Fatal(err)
	}

	for range 3 {
		l, err := r.Route(context.Background(), router.Prompt{Text: "When does the first train leave?"})
		if err != nil {
			log.Fatal(err)
		}
		l.Done(router.Outcome{Status: 200})
	}
	show(http.DefaultServeMux, "warmroute_picks_total", "warmroute_targets{")
	// Output:
	// warmroute_picks_total{reason="cold",route="llama",strategy="cache_aware"} 1
	// warmroute_picks_total{reason="empty_prompt",route="llama",strategy="cache_aware"} 0
	// warmroute_picks_total{reason="only_target",route="llama",strategy="cache_aware"} 0
	// warmroute_picks_total{reason="spill",route="llama",strategy="cache_aware"} 0
	// warmroute_picks_total{reason="warm",route="llama",strategy="cache_aware"} 2
	// warmroute_targets{fleet="default",state="asleep"} 0
	// warmroute_targets{fleet="default",state="cooling"} 0
	// warmroute_targets{fleet="default",state="draining"} 0
	// warmroute_targets{fleet="default",state="full"} 0
	// warmroute_targets{fleet="default",state="ready"} 2
	// warmroute_targets{fleet="default",state="tripped"} 0
	// warmroute_targets{fleet="default",state="unhealthy"} 0
}

// show prints the lines of the page that begin so.
func show(h http.Handler, begin ...string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		for _, b := range begin {
			if strings.HasPrefix(line, b) {
				fmt.Print(line)
			}
		}
	}
}

func page(c prom.Collector) http.Handler {
	registry := prom.NewRegistry()
	registry.MustRegister(c)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// Hooks of one's own are called too.
func ExampleCollector_Router() {
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		log.Fatal(err)
	}
	trace := metrics.Router(prometheus.Route{Name: "llama", Strategy: cacheaware.Name}, router.Trace{
		NoTarget: func(_ context.Context, _ router.Prompt, err error) { fmt.Println(err) },
	})
	trace.NoTarget(context.Background(), router.Prompt{}, &router.NoTargetError{Offered: 2, NotReady: 2})
	show(page(metrics), `warmroute_no_target_total{cause="not_ready"`)
	// Output:
	// router: no target: 2 offered, 0 excluded, 2 not ready
	// warmroute_no_target_total{cause="not_ready",route="llama",strategy="cache_aware"} 1
}

// Targets can have names for a dashboard.
func ExampleConfig() {
	metrics, err := prometheus.New(prometheus.Config{
		MaxTargets: 64,
		TargetName: func(id string) string { return strings.TrimSuffix(strings.TrimPrefix(id, "http://"), ":8000") },
	})
	if err != nil {
		log.Fatal(err)
	}
	fleet := metrics.Fleet("", loadview.Trace{})
	fleet.StateChanged("http://vllm-1:8000", router.Ready, router.Cooling)
	show(page(metrics), "warmroute_target_state_changes_total")
	// Output:
	// warmroute_target_state_changes_total{fleet="default",state="cooling",target="vllm-1"} 1
}

// An index and how right it was.
func ExampleCollector_WatchPrecise() {
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		log.Fatal(err)
	}
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	strategy, err := precisecacheaware.New(precisecacheaware.Config{Index: index})
	if err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchIndex("llama", index); err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchPrecise("llama", strategy.Stats); err != nil {
		log.Fatal(err)
	}
	show(page(metrics), "warmroute_index_blocks", "warmroute_index_mispredictions_total")
	// Output:
	// warmroute_index_blocks{index="llama"} 0
	// warmroute_index_mispredictions_total{route="llama"} 0
}

func ExampleCollector_LMCache() {
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		log.Fatal(err)
	}
	poller, err := lmcache.New(lmcache.Config{
		Targets: []lmcache.Target{{ID: "vllm-1", Endpoint: "http://127.0.0.1:8100/status"}},
		Trace:   metrics.LMCache("", lmcache.Trace{}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchLMCache("", poller); err != nil {
		log.Fatal(err)
	}
	show(page(metrics), "warmroute_lmcache_caches")
	// Output:
	// warmroute_lmcache_caches{fleet="default",state="available"} 0
	// warmroute_lmcache_caches{fleet="default",state="failed"} 0
	// warmroute_lmcache_caches{fleet="default",state="stale"} 0
	// warmroute_lmcache_caches{fleet="default",state="unavailable"} 0
	// warmroute_lmcache_caches{fleet="default",state="unknown"} 1
}
