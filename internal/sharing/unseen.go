package sharing

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// unseen learns how many requests the other gateways have sent, at the moment of a choice here, that are not known here
// yet: as many as are sent in the time that a frame takes. It is learned from the requests of this gateway, so it is
// high in bursts that reach all gateways at once.
type unseen struct {
	mean atomic.Uint64 // bits of a float64, for readers

	mu    sync.Mutex
	own   [64]time.Duration // when requests were last sent here
	count [64]float64       // others that were not known then
	n     int
}

// unseenWeight is the weight of one request in the mean.
const unseenWeight = 1.0 / 32

// sent notes that a request was sent here.
func (u *unseen) sent(now time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.n % len(u.own)
	if u.n >= len(u.own) {
		u.learn(u.count[at])
	}
	u.own[at], u.count[at] = now, 0
	u.n++
}

func (u *unseen) learn(x float64) {
	old := math.Float64frombits(u.mean.Load())
	u.mean.Store(math.Float64bits(old + unseenWeight*(x-old)))
}

// heard notes that others sent so many requests, a lag ago.
func (u *unseen) heard(n int64, now, lag time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := u.n - 1; i >= 0 && i >= u.n-len(u.own); i-- {
		at := i % len(u.own)
		if u.own[at] < now-lag {
			break
		}
		u.count[at] += float64(n)
	}
}

// Unseen returns the mean number of requests that other gateways have sent and that are not known here yet when one is
// sent here.
func (n *Node) Unseen() float64 { return math.Float64frombits(n.unseen.mean.Load()) }

// Place returns the rank of this gateway among the live ones, from 0 on, and their number.
func (n *Node) Place() (rank, of int) {
	x := n.place.Load()
	return int(x >> 32), max(int(uint32(x)), 1)
}

// golden spreads its multiples evenly over the unit interval.
const golden = 0.6180339887498949

// Position returns this gateway's place in the unit interval at a moment that all know by the same number. Those of
// different gateways are far apart, so that requests that they send at the same moment need not meet.
func (n *Node) Position(moment int) float64 {
	rank, of := n.Place()
	_, u := math.Modf(float64(rank)/float64(of) + float64(moment)*golden)
	return u
}
