package sharing

import (
	"cmp"
	"slices"
	"time"
)

// State is the state of a Node.
type State struct {
	Joined     bool
	LoadShared bool
	Lag        time.Duration
	LagP50     time.Duration
	LagP99     time.Duration
	Marks      int
	Memory     int
	Evicted    uint64
	Targets    int
	Peers      []Peer

	Sent, Received, BytesSent, BytesReceived    uint64
	Failed, Bad, Lost, Dropped, Repaired, Pages uint64
}

// Peer is the state of another gateway.
type Peer struct {
	ID      uint64
	Name    string
	Heard   time.Duration // ago
	Lag     time.Duration
	Up      time.Duration
	Marks   int
	Counted bool // its load counts
	Missing bool // frames of it are missing
}

// State returns the state.
func (n *Node) State() State {
	now := n.now()
	n.hooks.mu.Lock()
	dropped := n.hooks.dropped
	n.hooks.mu.Unlock()
	n.targets.mu.RLock()
	targets := len(n.targets.list) - len(n.targets.free)
	n.targets.mu.RUnlock()
	n.table.mu.RLock()
	marks, memory, evicted := n.table.used, n.table.memory(), n.table.evicted
	n.table.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := State{
		Joined: n.joined, LoadShared: n.LoadShared(), Lag: n.lag.now(now), Marks: marks, Memory: memory,
		Evicted: evicted, Targets: targets, Sent: n.stats.sent, Received: n.stats.received,
		BytesSent: n.stats.bytesOut, BytesReceived: n.stats.bytesIn, Failed: n.stats.failed, Bad: n.stats.bad,
		Lost: n.stats.lost, Dropped: dropped, Repaired: n.stats.repaired, Pages: n.stats.snapshots,
	}
	s.LagP50, s.LagP99 = n.lag.quantiles()
	for _, p := range n.peers {
		s.Peers = append(s.Peers, Peer{
			ID: p.id, Name: p.name, Heard: now - p.heard, Lag: p.roundTrip / 2, Up: now - p.born, Marks: p.marks,
			Counted: p.counted && n.LoadShared(), Missing: p.gap != 0 || p.lost,
		})
	}
	slices.SortFunc(s.Peers, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return s
}
