package prometheus_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/loadview"
)

// aSplit is a route with prefill and decode apart.
type aSplit struct{}

func (aSplit) Stats() disagg.Stats {
	return disagg.Stats{
		Split: 5, PrefillFailed: 1, Reused: 2, Again: 3, Expired: 4, Stranded: 6, Silent: 8,
		Skipped: map[disagg.Skip]uint64{disagg.SkipShort: 7, disagg.SkipIdle: 0},
	}
}

func (aSplit) Place(router.Target) disagg.Place { return disagg.Place{Role: disagg.Decode} }

// TestDisagg: each number of a route with roles is on the page, with the role of each target, until it is watched no
// more.
func TestDisagg(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	view := must(loadview.New(loadview.Config{}))
	if err := view.Set([]loadview.Member{{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	for _, route := range []string{"x", "y"} { // of one fleet
		if err := c.WatchDisagg(route, "", aSplit{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WatchDisagg("y", "", nil); err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(c, "warmroute_target_role"); n != 0 {
		t.Errorf("%d roles without a fleet", n)
	}
	if err := c.WatchFleet("", view); err != nil {
		t.Fatal(err)
	}
	if err := c.WatchDisagg("z", "", aSplit{}); err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(c, "warmroute_disagg_skipped_total"); n != 4 {
		t.Errorf("%d reasons of two routes", n)
	}
	if err := c.WatchDisagg("z", "", nil); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP warmroute_disagg_again_total Prompts that a prefill target computed once more, because their blocks were gone or may be.
# TYPE warmroute_disagg_again_total counter
warmroute_disagg_again_total{route="x"} 3
# HELP warmroute_disagg_prefills_total Prompts computed by a prefill target, and attempts at it that failed.
# TYPE warmroute_disagg_prefills_total counter
warmroute_disagg_prefills_total{outcome="failed",route="x"} 1
warmroute_disagg_prefills_total{outcome="finished",route="x"} 5
# HELP warmroute_disagg_reused_total Parameters of computed prompts that were sent to a further decode target.
# TYPE warmroute_disagg_reused_total counter
warmroute_disagg_reused_total{route="x"} 2
# HELP warmroute_disagg_silent_total Decode targets that sent no token in time.
# TYPE warmroute_disagg_silent_total counter
warmroute_disagg_silent_total{route="x"} 8
# HELP warmroute_disagg_skipped_total Requests with prompts that the decode target computed too, by the reason.
# TYPE warmroute_disagg_skipped_total counter
warmroute_disagg_skipped_total{reason="idle",route="x"} 0
warmroute_disagg_skipped_total{reason="short",route="x"} 7
# HELP warmroute_target_role 1 for the role of a target: prefill, decode or both.
# TYPE warmroute_target_role gauge
warmroute_target_role{fleet="default",role="decode",target="a"} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "warmroute_disagg_again_total",
		"warmroute_disagg_prefills_total", "warmroute_disagg_reused_total", "warmroute_disagg_silent_total",
		"warmroute_disagg_skipped_total", "warmroute_target_role"); err != nil {
		t.Error(err)
	}
}
