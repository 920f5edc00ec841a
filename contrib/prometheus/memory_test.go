package prometheus_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/membudget"
)

// TestMemory: each account of a budget is on the page, until it is watched no more.
func TestMemory(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	b := must(membudget.New(membudget.Config{Limit: 1000, Shares: map[string]float64{"bodies": 0.5, "events": 0.25}}))
	if err := c.WatchMemory("", b); err != nil {
		t.Fatal(err)
	}
	bodies := b.Account("bodies")
	for _, n := range []int64{400, 400} {
		_ = bodies.Reserve(n)
	}
	bodies.Release(100)
	const want = `# HELP warmroute_memory_bytes Bytes that an account of the memory budget has.
# TYPE warmroute_memory_bytes gauge
warmroute_memory_bytes{account="bodies",memory="default"} 300
warmroute_memory_bytes{account="events",memory="default"} 0
# HELP warmroute_memory_limit_bytes The most bytes that the account may have.
# TYPE warmroute_memory_limit_bytes gauge
warmroute_memory_limit_bytes{account="bodies",memory="default"} 500
warmroute_memory_limit_bytes{account="events",memory="default"} 250
# HELP warmroute_memory_peak_bytes The most bytes that the account has had.
# TYPE warmroute_memory_peak_bytes gauge
warmroute_memory_peak_bytes{account="bodies",memory="default"} 400
warmroute_memory_peak_bytes{account="events",memory="default"} 0
# HELP warmroute_memory_shed_total Reservations for which the account had no bytes.
# TYPE warmroute_memory_shed_total counter
warmroute_memory_shed_total{account="bodies",memory="default"} 1
warmroute_memory_shed_total{account="events",memory="default"} 0
# HELP warmroute_memory_total_limit_bytes The most bytes that all accounts together may have.
# TYPE warmroute_memory_total_limit_bytes gauge
warmroute_memory_total_limit_bytes{memory="default"} 1000
`
	err := testutil.CollectAndCompare(c, strings.NewReader(want), "warmroute_memory_bytes", "warmroute_memory_limit_bytes",
		"warmroute_memory_peak_bytes", "warmroute_memory_shed_total", "warmroute_memory_total_limit_bytes")
	if err != nil {
		t.Error(err)
	}
	if err := c.WatchMemory("", nil); err != nil || testutil.CollectAndCount(c, "warmroute_memory_bytes") != 0 {
		t.Errorf("it is watched still: %v", err)
	}
}
