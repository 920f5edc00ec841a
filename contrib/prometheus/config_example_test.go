package prometheus_test

import (
	"context"
	"log"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
)

// Routers that a file describes. In Options.Subscribe, kvevents.New takes the place
// of zmqsub.New.
func Example_config() {
	file, err := config.Parse([]byte(`
		[[providers]]
		name = "vllm-1"
		kind = "openai_compatible"
		api_base = "http://localhost:8001"

		[[routes]]
		model = "llama"
		strategy = "cache_aware"
		[[routes.targets]]
		provider = "vllm-1"
		model = "meta-llama/Llama-3.1-8B-Instruct"
	`), config.Options{})
	if err != nil {
		log.Fatal(err)
	}
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		log.Fatal(err)
	}
	strategies := make(map[string]string)
	for _, r := range file.Routes {
		strategies[r.Model] = r.Strategy
	}
	gateway, err := config.Build(file, config.Options{
		Trace: func(route string) router.Trace {
			return metrics.Router(prometheus.Route{Name: route, Strategy: strategies[route]}, router.Trace{})
		},
		View:    metrics.Fleet("", loadview.Trace{}),
		LMCache: metrics.LMCache("", lmcache.Trace{}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchFleet("", gateway.View()); err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchIndex("", gateway.Index()); err != nil { // nil where the file has no KV events
		log.Fatal(err)
	}

	match, ok := gateway.Route("llama")
	if !ok {
		log.Fatal("no route")
	}
	l, err := match.Router.Route(context.Background(), router.Prompt{Model: "llama", Text: "Hello"})
	if err != nil {
		log.Fatal(err)
	}
	l.Done(router.Outcome{Status: 200})
	show(page(metrics), `warmroute_picks_total{reason="only_target"`, `warmroute_targets{fleet="default",state="ready"`)
	// Output:
	// warmroute_picks_total{reason="only_target",route="llama",strategy="cache_aware"} 1
	// warmroute_targets{fleet="default",state="ready"} 1
}
