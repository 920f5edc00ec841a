package share

import (
	"fmt"
	"time"

	"github.com/warmroute/router/internal/sharing"
)

// State is the state of a Share, for pages and metrics.
type State struct {
	Bus BusState
	// Joined reports that the first look for peers is over: a snapshot has come from one of them, or none was there.
	Joined bool
	// LoadShared reports that the load of the other gateways counts: it is shared, and the Bus is quick enough.
	LoadShared bool
	// Lag is how long this gateway's own frames take to come back at the moment, LagP50 and LagP99 are of the
	// last 256.
	Lag, LagP50, LagP99 time.Duration
	// Marks are the fingerprints that are remembered, Memory the bytes that they take, and Evicted how many were dropped
	// because of Config.MaxMarks.
	Marks, Memory int
	Evicted       uint64
	// Targets are those that any gateway has named.
	Targets int
	// Peers are the other gateways, by name.
	Peers []Peer
	// Sent and Received count frames, with their bytes. The gateway's own, which come back, are among those received.
	Sent, Received, BytesSent, BytesReceived uint64
	// Failed are frames that the Bus refused, Bad those that could not be read, Lost the times that frames were missing
	// and could not be had again, and Repaired the frames that were. Dropped are events of this gateway that were
	// not published because too many were waiting. Snapshots are those that were taken in.
	Failed, Bad, Lost, Repaired, Dropped, Snapshots uint64
}

// Peer is the state of another gateway.
type Peer struct {
	// ID is drawn when the gateway starts; Name is its Config.Name.
	ID, Name string
	// Heard is how long ago it was last heard, Up how long it had been running when it last said so.
	Heard, Up time.Duration
	// Lag is half of the time that a frame to it and its answer take.
	Lag time.Duration
	// Marks are the fingerprints that it remembers.
	Marks int
	// Counted reports that its load counts, Missing that some of its frames are missing.
	Counted, Missing bool
}

// State returns the state. It locks the record of fingerprints for reading.
func (s *Share) State() State {
	n := s.node.State()
	out := State{
		Bus: s.cfg.Bus.State(), Joined: n.Joined, LoadShared: n.LoadShared, Lag: n.Lag, LagP50: n.LagP50,
		LagP99: n.LagP99, Marks: n.Marks, Memory: n.Memory, Evicted: n.Evicted, Targets: n.Targets, Sent: n.Sent,
		Received: n.Received, BytesSent: n.BytesSent, BytesReceived: n.BytesReceived, Failed: n.Failed, Bad: n.Bad,
		Lost: n.Lost, Repaired: n.Repaired, Dropped: n.Dropped, Snapshots: n.Pages, Peers: make([]Peer, len(n.Peers)),
	}
	for i, p := range n.Peers {
		out.Peers[i] = peerOf(p)
	}
	return out
}

func peerOf(p sharing.Peer) Peer {
	return Peer{
		ID: fmt.Sprintf("%012x", p.ID), Name: p.Name, Heard: p.Heard, Up: p.Up, Lag: p.Lag, Marks: p.Marks,
		Counted: p.Counted, Missing: p.Missing,
	}
}
