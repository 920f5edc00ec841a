package loadview

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/loadview/enginepage"
)

// pool is the part that Views over the same members share.
type pool struct {
	lacking int // remembered lacks of all members; under the lock

	cfg      atomic.Pointer[Config] // with its defaults; SetConfig replaces it
	dialects *enginepage.Table
	clock    *clock

	// setting is held through a change of the members with its hooks, so that the
	// hooks of one change are over before the next begins.
	setting sync.Mutex

	mu      sync.Mutex
	byID    map[string]*member
	members []*member
	// due is the earliest instant at which time may change a state; 0: none.
	due time.Duration
	// changed holds members with a state that differs from the reported one, each at
	// most once; notifying: a goroutine reports them.
	changed   []*member
	notifying bool
	pending   atomic.Bool // changed or alarmed has one, to be read without the lock
	// alarmed holds Views of which a panic began or ended that was not reported.
	alarmed []*View

	full    int       // members that are Full
	warming []*member // members with a handicap

	suspects  suspects
	suspected atomic.Bool // len(suspects.list) > 0, to be read without the lock

	waiters chan struct{} // of the last Changed; nil: there was none since the last change
	forget  listeners
	peers   peering.Node // the other gateways; nil: none

	work    chan struct{} // of capacity 1: members or cfg have changed, for Run
	running atomic.Bool   // Run runs
}

func newPool(cfg Config) *pool {
	p := &pool{
		dialects: enginepage.NewTable(append(cfg.Scrape.Dialects[:len(cfg.Scrape.Dialects):len(cfg.Scrape.Dialects)],
			enginepage.Dialects()...)),
		clock:    newClock(cfg.Now),
		byID:     map[string]*member{},
		suspects: suspects{seed: maphash.MakeSeed()},
		work:     make(chan struct{}, 1),
	}
	p.cfg.Store(&cfg)
	p.join(cfg.Share)
	return p
}

// now is the time since New.
func (p *pool) now() time.Duration { return p.clock.since() }

// watch sees to it that the pool looks at its members again at t.
func (p *pool) watch(t time.Duration) {
	if p.due == 0 || t < p.due {
		p.due = t
	}
}

// wake lets Run look at the members and at cfg again.
func (p *pool) wake() {
	select {
	case p.work <- struct{}{}:
	default:
	}
}

func toInt(n int64) int { return int(min(n, math.MaxInt)) }
