package debugui

import (
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/share"
)

// splitState is what became of prompts with prefill and decode apart.
type splitState struct {
	Split    uint64            `json:"split"`
	Failed   uint64            `json:"failed"`
	Again    uint64            `json:"again"`
	Reused   uint64            `json:"reused"`
	Stranded uint64            `json:"stranded"`
	Expired  uint64            `json:"expired"`
	Silent   uint64            `json:"silent"`
	Skipped  map[string]uint64 `json:"skipped"`
}

func splitsOf(s disagg.Stats) *splitState {
	v := &splitState{
		Split: s.Split, Failed: s.PrefillFailed, Again: s.Again, Reused: s.Reused, Stranded: s.Stranded, Expired: s.Expired,
		Silent: s.Silent, Skipped: make(map[string]uint64),
	}
	for why, n := range s.Skipped {
		if n > 0 {
			v.Skipped[string(why)] = n
		}
	}
	return v
}

// sharedState is the view that several gateways share.
type sharedState struct {
	Connected bool        `json:"connected"`
	Load      bool        `json:"load"` // of the others counts
	LagUS     int64       `json:"lagUs"`
	LagP99US  int64       `json:"lagP99Us"`
	Marks     int         `json:"marks"`
	MemoryKB  int         `json:"memoryKB"`
	SentKB    uint64      `json:"sentKB"`
	Lost      uint64      `json:"lost"`
	Peers     []peerState `json:"peers"`
	PeersOf   int         `json:"peersOf"`
}

type peerState struct {
	Name    string `json:"name"`
	HeardMS int64  `json:"heardMs"`
	UpS     int64  `json:"upS"`
	LagUS   int64  `json:"lagUs"`
	Marks   int    `json:"marks"`
	Counted bool   `json:"counted"`
	Missing bool   `json:"missing"`
}

func sharedOf(s share.State) *sharedState {
	v := &sharedState{
		Connected: s.Bus.Connected, Load: s.LoadShared, LagUS: s.LagP50.Microseconds(), LagP99US: s.LagP99.Microseconds(),
		Marks: s.Marks, MemoryKB: s.Memory >> 10, SentKB: s.BytesSent >> 10, PeersOf: len(s.Peers),
	}
	for _, l := range observe.ShareLosses(s) {
		v.Lost += l.N
	}
	for _, p := range s.Peers[:min(len(s.Peers), maxRows)] {
		v.Peers = append(v.Peers, peerState{
			Name: clip(p.Name, 64), HeardMS: p.Heard.Milliseconds(), UpS: int64(p.Up.Seconds()), LagUS: p.Lag.Microseconds(),
			Marks: p.Marks, Counted: p.Counted, Missing: p.Missing,
		})
	}
	return v
}

// memoryState is a budget of bytes and its accounts.
type memoryState struct {
	LimitKB  int64          `json:"limitKB"`
	UsedKB   int64          `json:"usedKB"`
	PeakKB   int64          `json:"peakKB"`
	Accounts []accountState `json:"accounts"`
}

type accountState struct {
	Name    string `json:"name"`
	LimitKB int64  `json:"limitKB"`
	UsedKB  int64  `json:"usedKB"`
	PeakKB  int64  `json:"peakKB"`
	Shed    uint64 `json:"shed"`
}

func memoryOf(s membudget.Stats) *memoryState {
	v := &memoryState{LimitKB: s.Limit >> 10, UsedKB: s.Used >> 10, PeakKB: s.Peak >> 10}
	for _, a := range s.Accounts[:min(len(s.Accounts), maxRows)] {
		v.Accounts = append(v.Accounts, accountState{clip(a.Name, 64), a.Limit >> 10, a.Used >> 10, a.Peak >> 10, a.Shed})
	}
	return v
}
