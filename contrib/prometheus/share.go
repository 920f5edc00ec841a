package prometheus

import (
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/share"
)

var (
	shareConnected = read(gauge, "share_connected", "1 if the bus is connected.", "share")
	shareJoined    = read(gauge, "share_joined", "1 if the first look for other gateways is over.", "share")
	shareLoad      = read(gauge, "share_load_shared", "1 if the load of other gateways counts.", "share")
	sharePeers     = read(gauge, "share_peers", "Other gateways that are heard.", "share")
	shareCounted   = read(gauge, "share_peers_counted", "Other gateways with a load that counts.", "share")
	shareLag       = read(gauge, "share_lag_seconds",
		"Time that this gateway's own frames take to come back, of the last 256.", "share", "percentile")
	shareMarks   = read(gauge, "share_marks", "Fingerprints of text that are remembered.", "share")
	shareMemory  = read(gauge, "share_mark_bytes", "Bytes that the fingerprints take.", "share")
	shareEvicted = read(counter, "share_marks_evicted_total", "Fingerprints that went because of the bound.", "share")
	shareFrames  = read(counter, "share_frames_total",
		"Frames on the bus, by direction; the gateway's own come back.", "share", "direction")
	shareBytes  = read(counter, "share_bytes_total", "Bytes of frames on the bus, by direction.", "share", "direction")
	shareLosses = read(counter, "share_losses_total",
		"Frames and events that were lost, by the cause.", "share", "cause")
	shareRepaired = read(counter, "share_repaired_total",
		"Missing frames of other gateways that came after a question.", "share")
	shareSnapshots = read(counter, "share_snapshots_total",
		"Pages of other gateways' snapshots that were taken in.", "share")
)

// shared is a view that several gateways share, as a *share.Share has it.
type shared interface{ State() share.State }

// WatchShare is WatchFleet for the view that several gateways share; a *share.Share has one.
func (c *Collector) WatchShare(name string, s interface{ State() share.State }) error {
	return watch(c, c.shares, name, shared(s), s == nil)
}

func collectShare(p page, name string, s shared) {
	st := s.State()
	counted := 0
	for _, peer := range st.Peers {
		if peer.Counted {
			counted++
		}
	}
	truth := map[bool]float64{true: 1}
	p.add(shareConnected, truth[st.Bus.Connected], name)
	p.add(shareJoined, truth[st.Joined], name)
	p.add(shareLoad, truth[st.LoadShared], name)
	p.add(sharePeers, float64(len(st.Peers)), name)
	p.add(shareCounted, float64(counted), name)
	p.add(shareLag, st.LagP50.Seconds(), name, "50")
	p.add(shareLag, st.LagP99.Seconds(), name, "99")
	p.add(shareMarks, float64(st.Marks), name)
	p.add(shareMemory, float64(st.Memory), name)
	p.add(shareEvicted, float64(st.Evicted), name)
	p.add(shareFrames, float64(st.Sent), name, "sent")
	p.add(shareFrames, float64(st.Received), name, "received")
	p.add(shareBytes, float64(st.BytesSent), name, "sent")
	p.add(shareBytes, float64(st.BytesReceived), name, "received")
	for _, l := range observe.ShareLosses(st) {
		p.add(shareLosses, float64(l.N), name, l.Cause)
	}
	p.add(shareRepaired, float64(st.Repaired), name)
	p.add(shareSnapshots, float64(st.Snapshots), name)
}
