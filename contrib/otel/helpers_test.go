package otel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/warmroute/router/contrib/otel"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// rig is a Telemetry and what the SDK makes of it.
type rig struct {
	*otel.Telemetry
	t      testing.TB
	reader *sdk.ManualReader
}

func newRig(t testing.TB, cfg otel.Config) *rig {
	t.Helper()
	r := &rig{t: t, reader: sdk.NewManualReader()}
	cfg.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(r.reader))
	tel, err := otel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Telemetry = tel
	return r
}

func (r *rig) collect() metricdata.ResourceMetrics {
	r.t.Helper()
	var m metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &m); err != nil {
		r.t.Fatal(err)
	}
	return m
}

// point is one series: what it is called, and its value or its number of
// observations.
type point struct {
	set   attribute.Set
	value float64
}

type series struct {
	kind, unit, help string
	points           []point
}

func (r *rig) series() map[string]series {
	r.t.Helper()
	all := make(map[string]series)
	for _, s := range r.collect().ScopeMetrics {
		for _, m := range s.Metrics {
			se := series{unit: m.Unit, help: m.Description}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				se.kind = "counter"
				if !d.IsMonotonic {
					se.kind = "updowncounter"
				}
				for _, p := range d.DataPoints {
					se.points = append(se.points, point{p.Attributes, float64(p.Value)})
				}
			case metricdata.Gauge[int64]:
				se.kind = "gauge"
				for _, p := range d.DataPoints {
					se.points = append(se.points, point{p.Attributes, float64(p.Value)})
				}
			case metricdata.Histogram[float64]:
				se.kind = "histogram"
				for _, p := range d.DataPoints {
					se.points = append(se.points, point{p.Attributes, float64(p.Count)})
				}
			case metricdata.Histogram[int64]:
				se.kind = "histogram"
				for _, p := range d.DataPoints {
					se.points = append(se.points, point{p.Attributes, float64(p.Count)})
				}
			default:
				r.t.Fatalf("%s is a %T", m.Name, d)
			}
			all[m.Name] = se
		}
	}
	return all
}

// sum adds up the series of a metric that have these attributes, keys and values
// in turn; -1 if there is none.
func (r *rig) sum(name string, kv ...string) float64 {
	r.t.Helper()
	sum, n := 0.0, 0
points:
	for _, p := range r.series()[name].points {
		for i := 0; i < len(kv); i += 2 {
			if v, ok := p.set.Value(attribute.Key(kv[i])); !ok || v.AsString() != kv[i+1] {
				continue points
			}
		}
		n++
		sum += p.value
	}
	if n == 0 {
		return -1
	}
	return sum
}

func (r *rig) is(want float64, name string, kv ...string) {
	r.t.Helper()
	if got := r.sum(name, kv...); got != want {
		r.t.Errorf("%s%v is %v, want %v", name, kv, got, want)
	}
}

func (r *rig) becomes(ok func(float64) bool, name string, kv ...string) {
	r.t.Helper()
	var got float64
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got = r.sum(name, kv...); ok(got) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s%v is %v\n%s", name, kv, got, r.dump())
		}
	}
}

func (r *rig) reaches(least float64, name string, kv ...string) {
	r.t.Helper()
	r.becomes(func(v float64) bool { return v >= least }, name, kv...)
}

// dump is all that is exported.
func (r *rig) dump() string {
	b, err := json.Marshal(r.collect())
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprintf("%s\n%+v", b, r.series())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
