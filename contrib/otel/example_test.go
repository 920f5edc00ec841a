package otel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/otel"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Metrics of a router and its fleet, and the events of a request's span.
func Example() {
	reader := sdkmetric.NewManualReader() // in a program: a periodic one, with an exporter
	telemetry, err := otel.New(otel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		log.Fatal(err)
	}
	strategy, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		log.Fatal(err)
	}
	fleet, err := loadview.New(loadview.Config{Trace: telemetry.Fleet("", loadview.Trace{})})
	if err != nil {
		log.Fatal(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		log.Fatal(err)
	}
	if err := telemetry.WatchFleet("", fleet); err != nil {
		log.Fatal(err)
	}
	r := router.New(strategy, fleet, router.Options{
		Trace: telemetry.Router(otel.Route{Name: "llama", Strategy: cacheaware.Name, Model: "llama-3.1-8b"}, router.Trace{}),
	})

	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("gateway")
	ctx, span := tracer.Start(context.Background(), "chat llama-3.1-8b")
	l, err := r.Route(ctx, router.Prompt{Text: "When does the first train leave?"})
	if err != nil {
		log.Fatal(err)
	}
	l.Done(router.Outcome{Status: 200, PromptTokens: 12, OutputTokens: 40})
	span.End()

	for _, e := range spans.Ended()[0].Events() {
		fmt.Println(e.Name)
		for _, a := range e.Attributes {
			switch a.Key {
			case "warmroute.reason", "gen_ai.request.model", "gen_ai.usage.input_tokens":
				fmt.Printf("  %s: %s\n", a.Key, a.Value.String())
			}
		}
	}
	var m metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &m); err != nil {
		log.Fatal(err)
	}
	for _, m := range m.ScopeMetrics[0].Metrics {
		if m.Name == "warmroute.picks" {
			total := int64(0)
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints { // one for each reason
				total += p.Value
			}
			fmt.Println(m.Name, total)
		}
	}
	// Output:
	// warmroute.decision
	//   gen_ai.request.model: llama-3.1-8b
	//   warmroute.reason: cold
	// warmroute.first_token
	// warmroute.outcome
	//   gen_ai.usage.input_tokens: 12
	// warmroute.picks 1
}
