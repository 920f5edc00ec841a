package otel

import (
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/share"
	"go.opentelemetry.io/otel/attribute"
)

const (
	keyShare      = attribute.Key("warmroute.share")
	keyDirection  = attribute.Key("network.io.direction")
	keyPercentile = attribute.Key("warmroute.percentile")
)

// shared is a view that several gateways share, as a *share.Share has it.
type shared interface{ State() share.State }

// WatchShare is WatchFleet for the view that several gateways share; a *share.Share has one.
func (t *Telemetry) WatchShare(name string, s interface{ State() share.State }) error {
	return watch(t, t.shares, name, shared(s), s == nil)
}

func (t *Telemetry) observeShare(s sums, name string, sh shared) {
	st, a := sh.State(), keyShare.String(name)
	truth := map[bool]int{true: 1}
	s.add(t.shareConnected, truth[st.Bus.Connected], a)
	s.add(t.shareLoad, truth[st.LoadShared], a)
	s.add(t.sharePeers, len(st.Peers), a)
	s.add(t.shareLag, int(st.LagP50.Microseconds()), a, keyPercentile.Int(50))
	s.add(t.shareLag, int(st.LagP99.Microseconds()), a, keyPercentile.Int(99))
	s.add(t.shareMarks, st.Marks, a)
	s.add(t.shareFrames, int(st.Sent), a, keyDirection.String("transmit"))
	s.add(t.shareFrames, int(st.Received), a, keyDirection.String("receive"))
	s.add(t.shareBytes, int(st.BytesSent), a, keyDirection.String("transmit"))
	s.add(t.shareBytes, int(st.BytesReceived), a, keyDirection.String("receive"))
	for _, l := range observe.ShareLosses(st) {
		s.add(t.shareLosses, int(l.N), a, keyCause.String(l.Cause))
	}
}
