package loadview

import (
	"errors"
	"net"
	"time"

	"github.com/warmroute/router"
)

// The model below is the naive reading of the package's documentation: it keeps
// the requests themselves and sums them up when asked, and it goes through all
// members whenever time passes.

type modelRequest struct {
	flight  router.Flight
	member  *modelMember
	sent    int // the model's tick
	since   int // the same, for failures; later if it recovered a breaker
	prefill int
	first   bool
	spared  bool // sent to a member that is out, in a panic
}

type modelMember struct {
	cfg               Member
	asked, unhealthy  bool
	live              map[*modelRequest]bool
	queued            int // -1: unknown
	row, breakerRow   int
	cools             int
	streak            int           // the model's tick at the first failure of the row
	cool, pause, open time.Duration // until; 0: no
	tripped, deaf     bool
	probe             *modelRequest
	recovered         int // the model's tick
}

type model struct {
	now     time.Duration
	tick    int
	members []*modelMember
}

const (
	modelCoolAfter = 2
	modelBase      = 4 * time.Second
	modelMax       = 25 * time.Second
	modelRetryMax  = 20 * time.Second
	modelFailures  = 3
	modelOpen      = 10 * time.Second
)

func (m *model) find(id string) *modelMember {
	for _, x := range m.members {
		if x.cfg.ID == id {
			return x
		}
	}
	return nil
}

func (m *model) advance(d time.Duration) {
	m.now += d
	for _, x := range m.members {
		if x.cool != 0 && x.cool <= m.now {
			x.cool = 0
			m.tick++
			x.recovered = m.tick
		}
		if x.pause <= m.now {
			x.pause = 0
		}
		if x.open <= m.now {
			x.open = 0
		}
	}
}

func (m *model) state(x *modelMember) router.State {
	switch {
	case x.cfg.Draining || x.asked:
		return router.Draining
	case x.unhealthy:
		return router.Unhealthy
	case x.tripped && (x.open != 0 || x.probe != nil):
		return router.Tripped
	case x.cool != 0 || x.pause != 0:
		return router.Cooling
	}
	return router.Ready
}

func (x *modelMember) out() bool {
	return x.cool != 0 || x.tripped && (x.open != 0 || x.probe != nil)
}

// panics reports whether most of those that count are out, and whether all of them
// are unreachable.
func (m *model) panics() (yes, dark bool) {
	n, out, deaf := 0, 0, 0
	for _, x := range m.members {
		if x.cfg.Draining || x.asked || x.unhealthy {
			continue
		}
		n++
		if x.out() {
			out++
			if x.deaf {
				deaf++
			}
		}
	}
	return n > 1 && out > n-out, deaf == n
}

func (m *model) offered(x *modelMember) router.State {
	s := m.state(x)
	if yes, dark := m.panics(); !yes || s != router.Tripped && s != router.Cooling || x.deaf && !dark {
		return s
	}
	if x.pause != 0 {
		return router.Cooling
	}
	return router.Ready
}

func (m *model) target(x *modelMember) router.Target {
	t := router.Target{ID: x.cfg.ID, Weight: x.cfg.Weight, Ref: x.cfg.Ref, State: m.offered(x)}
	t.Load = router.Load{Known: true, InFlight: len(x.live), Queued: x.queued}
	if x.queued < 0 {
		var sum, n float64
		for _, y := range m.members {
			if y.queued >= 0 {
				sum += float64(y.queued)
				n++
			}
		}
		t.Load.Queued = 0
		if n > 0 {
			t.Load.Queued = int(sum/n + 0.5)
		}
	}
	for r := range x.live {
		if !r.first {
			t.Load.Prefill += r.prefill
		}
	}
	return t
}

func (m *model) retryAfter() time.Duration {
	least := time.Duration(0)
	for _, x := range m.members {
		if s := m.state(x); s != router.Cooling && s != router.Tripped || x.probe != nil {
			continue
		}
		if d := max(x.cool, x.pause, x.open) - m.now; least == 0 || d < least {
			least = d
		}
	}
	return least
}

func (m *model) first(r *modelRequest) {
	x := r.member
	if !r.first && x.live[r] {
		x.deaf = false
	}
	r.first = true
	spared := r.spared && x.out() && !x.cfg.Draining && !x.asked && !x.unhealthy
	if (x.probe == r || spared) && x.live[r] {
		if x.probe != r && r.sent <= x.streak {
			m.tick++
			r.since = m.tick
			return
		}
		if x.probe == r {
			x.probe = nil
		}
		m.success(x, true)
		m.tick++
		r.since = m.tick
	}
}

func (m *model) success(x *modelMember, wasProbe bool) {
	x.row, x.cools, x.breakerRow, x.streak = 0, 0, 0, 0
	if x.cool != 0 || wasProbe && x.tripped {
		m.tick++
		x.recovered = m.tick
	}
	x.cool = 0
	if wasProbe && x.tripped {
		x.tripped, x.probe, x.open = false, nil, 0
	}
}

func (m *model) done(r *modelRequest, o router.Outcome) {
	x := r.member
	if !x.live[r] {
		return
	}
	delete(x.live, r)
	if o.Stage == router.Finished || o.Status != 0 {
		x.deaf = false
	}
	wasProbe := x.probe == r
	if wasProbe {
		x.probe = nil
	}
	if o.Stage == router.Finished {
		if wasProbe || r.sent > x.streak {
			m.success(x, wasProbe || r.spared)
		}
		return
	}
	if o.Stage != router.Failed || o.Status >= 400 && o.Status < 500 && o.Status != 408 && o.Status != 429 {
		return
	}
	if o.RetryAfter > 0 {
		x.pause = max(x.pause, m.now+min(o.RetryAfter, modelRetryMax))
		if o.Status == 429 {
			return
		}
	}
	x.deaf = x.deaf || o.Err == errDial
	fresh := r.since > x.recovered
	if fresh && x.row == 0 && x.breakerRow == 0 && x.cool == 0 {
		m.tick++
		x.streak = m.tick
	}
	if wasProbe {
		x.open = m.now + modelOpen
	} else if fresh && !x.tripped {
		x.breakerRow++
		if x.breakerRow >= modelFailures {
			x.tripped, x.open = true, m.now+modelOpen
		}
	}
	if fresh && x.cool == 0 {
		x.row++
		if x.row >= modelCoolAfter {
			x.cool = m.now + min(modelBase<<x.cools, modelMax)
			x.cools = min(x.cools+1, 8)
		}
	}
}

// errDial is the error of a request to a member at which nothing listens.
var errDial error = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
