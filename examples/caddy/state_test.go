package warmroute

import (
	"strings"
	"testing"

	"github.com/warmroute/router/internal/statetest"
)

// TestStateStays: a request that names a response, a conversation, a file or a medium goes to the upstream that has it.
func TestStateStays(t *testing.T) {
	for _, strategy := range []string{"round_robin", "least_work"} {
		t.Run(strategy, func(t *testing.T) {
			var engines []*statetest.Engine
			var addrs []string
			for _, name := range []string{"e0", "e1", "e2", "e3"} {
				e := statetest.New(t, name)
				engines, addrs = append(engines, e), append(addrs, strings.TrimPrefix(e.URL, "http://"))
			}
			h := start(t, "\treverse_proxy "+strings.Join(addrs, " ")+" {\n\t\tlb_policy warmroute "+strategy+
				"\n\t\tflush_interval -1\n\t}\n")
			statetest.Run(t, statetest.Host{URL: "http://localhost", Client: h.client}, engines...)
		})
	}
}
