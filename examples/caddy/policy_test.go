package warmroute

import (
	"testing"

	"github.com/warmroute/router/vllmtest"
)

func TestInProcess(t *testing.T) {
	rs, addrs := fleetOf(t, 4, vllmtest.Config{TimeScale: 0.05})
	h := start(t, site(t, addrs, tell))
	conversations(t, h, rs)
	reloads(t, h, func(int) { h.reload(t, site(t, addrs, tell)) })
	leaves(t, h, rs)
	kills(t, h, rs)
}
