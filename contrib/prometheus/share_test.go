package prometheus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/warmroute/router/contrib/prometheus"
	"github.com/warmroute/router/share"
)

// aShare is a view that is shared with two gateways.
type aShare struct{}

func (aShare) State() share.State {
	return share.State{
		Bus: share.BusState{Connected: true, Dropped: 1}, Joined: true, LagP50: 2 * time.Millisecond,
		LagP99: 5 * time.Millisecond, Marks: 7, Memory: 280, Evicted: 3, Peers: []share.Peer{{Counted: true}, {}},
		Sent: 10, Received: 20, BytesSent: 1000, BytesReceived: 2000, Failed: 4, Bad: 5, Lost: 6, Repaired: 8, Dropped: 9,
		Snapshots: 11,
	}
}

// TestShare: each number of a shared view is on the page, until it is watched no more.
func TestShare(t *testing.T) {
	c := must(prometheus.New(prometheus.Config{}))
	if err := c.WatchShare("", aShare{}); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP warmroute_share_lag_seconds Time that this gateway's own frames take to come back, of the last 256.
# TYPE warmroute_share_lag_seconds gauge
warmroute_share_lag_seconds{percentile="50",share="default"} 0.002
warmroute_share_lag_seconds{percentile="99",share="default"} 0.005
# HELP warmroute_share_load_shared 1 if the load of other gateways counts.
# TYPE warmroute_share_load_shared gauge
warmroute_share_load_shared{share="default"} 0
# HELP warmroute_share_losses_total Frames and events that were lost, by the cause.
# TYPE warmroute_share_losses_total counter
warmroute_share_losses_total{cause="bad",share="default"} 5
warmroute_share_losses_total{cause="bus",share="default"} 1
warmroute_share_losses_total{cause="missing",share="default"} 6
warmroute_share_losses_total{cause="refused",share="default"} 4
warmroute_share_losses_total{cause="too_fast",share="default"} 9
# HELP warmroute_share_peers Other gateways that are heard.
# TYPE warmroute_share_peers gauge
warmroute_share_peers{share="default"} 2
# HELP warmroute_share_peers_counted Other gateways with a load that counts.
# TYPE warmroute_share_peers_counted gauge
warmroute_share_peers_counted{share="default"} 1
`
	err := testutil.CollectAndCompare(c, strings.NewReader(want), "warmroute_share_lag_seconds",
		"warmroute_share_load_shared", "warmroute_share_losses_total", "warmroute_share_peers",
		"warmroute_share_peers_counted")
	if err != nil {
		t.Error(err)
	}
	if err := c.WatchShare("", nil); err != nil || testutil.CollectAndCount(c, "warmroute_share_peers") != 0 {
		t.Errorf("it is watched still: %v", err)
	}
}
