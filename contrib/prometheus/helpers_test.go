package prometheus_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/lmcache"
)

// site serves the page of a collector.
type site struct {
	t   testing.TB
	url string
}

func serve(t testing.TB, c *prometheus.Collector) *site {
	t.Helper()
	reg := prom.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(s.Close)
	return &site{t, s.URL}
}

// text reads the page.
func (s *site) text() string {
	s.t.Helper()
	res, err := http.Get(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		s.t.Fatalf("%v, %v: %s", res.Status, err, b)
	}
	return string(b)
}

func (s *site) families() map[string]*dto.MetricFamily {
	s.t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	f, err := p.TextToMetricFamilies(strings.NewReader(s.text()))
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// sum adds up the series of a name that have these labels, "key=value"; of a
// histogram, their numbers of observations. It is -1 if there is no series.
func (s *site) sum(name string, labels ...string) float64 {
	s.t.Helper()
	sum, n := 0.0, 0
	f := s.families()[name]
	if f == nil {
		return -1
	}
series:
	for _, m := range f.GetMetric() {
		for _, want := range labels {
			k, v, _ := strings.Cut(want, "=")
			found := false
			for _, l := range m.GetLabel() {
				found = found || l.GetName() == k && l.GetValue() == v
			}
			if !found {
				continue series
			}
		}
		n++
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	if n == 0 {
		return -1
	}
	return sum
}

// is checks a sum.
func (s *site) is(want float64, name string, labels ...string) {
	s.t.Helper()
	if got := s.sum(name, labels...); got != want {
		s.t.Errorf("%s%v is %v, want %v", name, labels, got, want)
	}
}

// becomes waits for a sum.
func (s *site) becomes(what string, ok func(float64) bool, name string, labels ...string) {
	s.t.Helper()
	var got float64
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got = s.sum(name, labels...); ok(got) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s%v is %v, want %s\n%s", name, labels, got, what, s.text())
		}
	}
}

func (s *site) reaches(least float64, name string, labels ...string) {
	s.t.Helper()
	s.becomes("more", func(v float64) bool { return v >= least }, name, labels...)
}

func (s *site) falls(to float64, name string, labels ...string) {
	s.t.Helper()
	s.becomes("another", func(v float64) bool { return v == to }, name, labels...)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// freeCache is a poller that knows an LMCache of which seven tenths are free.
func freeCache(t testing.TB) *lmcache.Poller {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"occupancy": 0.3}`)
	}))
	t.Cleanup(s.Close)
	polled := make(chan struct{}, 1)
	p := must(lmcache.New(lmcache.Config{
		Targets: []lmcache.Target{{ID: "a", Endpoint: s.URL, Stale: time.Hour}},
		Trace:   lmcache.Trace{Changed: func(lmcache.State, lmcache.Status) { polled <- struct{}{} }},
	}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	<-polled
	stop()
	<-done
	return p
}
