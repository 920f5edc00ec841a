package kvevents_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/contrib/prometheus/kvevents"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/vllmtest"
)

// New takes the place of zmqsub.New.
func ExampleNew() {
	vllm := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6, Events: &vllmtest.Events{}})
	defer vllm.Close()
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		log.Fatal(err)
	}
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchIndex("llama", index); err != nil {
		log.Fatal(err)
	}
	sub, err := kvevents.New(metrics, "", zmqsub.Config{
		Endpoint: vllm.Events().Endpoint(), // as in "tcp://vllm-1:5557"
		Targets:  []zmqsub.Target{{ID: "vllm-1", Replay: vllm.Events().ReplayEndpoint()}},
		Index:    index,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- sub.Run(ctx) }()

	body := `{"prompt": "` + strings.Repeat("When does the first train leave? ", 10) + `", "max_tokens": 1}`
	resp, err := http.Post(vllm.URL+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
	for sub.State("vllm-1") != zmqsub.Live {
		time.Sleep(time.Millisecond)
	}

	registry := prom.NewRegistry()
	registry.MustRegister(metrics)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, `warmroute_event_streams{fleet="default",state="live"`) || strings.HasPrefix(line, "warmroute_index_trusted") {
			fmt.Print(line)
		}
	}
	stop()
	<-done
	// Output:
	// warmroute_event_streams{fleet="default",state="live"} 1
	// warmroute_index_trusted_targets{index="llama"} 1
}
