package loadview

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/warmroute/router/internal/peering"
)

// What an engine said to one gateway of a fleet holds for all of them: that it is full, and for whom, that it wants a
// pause, was restarted or sleeps. A cool-down and an open breaker are what one gateway concluded, maybe of its own
// connection: to the others they are hints. A hint cools no member. While it holds, one failure of a member here is
// enough to cool it.

// repeated is how long after a restart without a start time another one is taken for the same.
const repeated = 15 * time.Second

// pass passes on a piece of news about m.
func (p *pool) pass(m *member, kind peering.Kind, body []byte) {
	if p.peers != nil && !m.gone {
		p.peers.Pass(kind, m.id, body)
	}
}

func milliseconds(d time.Duration) []byte {
	return binary.AppendUvarint(nil, uint64(max(d, 0)/time.Millisecond))
}

// tellRefused passes on that m refused a request of a party for a time.
func (p *pool) tellRefused(m *member, to party, retryAfter time.Duration) {
	if p.peers == nil || retryAfter <= 0 {
		return
	}
	b := milliseconds(retryAfter)
	for _, s := range []string{to.model, to.account} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	p.pass(m, peering.Refused, b)
}

// tellRestart passes on that m lost its cache, by a restart at a time of its own clock, negative if it has none.
func (p *pool) tellRestart(id string, start float64) {
	if p.peers != nil {
		p.peers.Forget(id)
		p.peers.Pass(peering.Restarted, id, binary.LittleEndian.AppendUint64(nil, math.Float64bits(start)))
	}
}

// listen has the pool take in the news of the other gateways. get returns it as long as it is in use.
func listen(n peering.Node, get func() *pool) {
	for kind := peering.Refused; kind <= peering.Hint; kind++ {
		n.OnNews(kind, func(id string, body []byte, age time.Duration) bool {
			p := get()
			if p != nil {
				p.heard(kind, id, body, age)
			}
			return p != nil
		})
	}
}

// heard takes in a piece of news.
func (p *pool) heard(kind peering.Kind, id string, body []byte, age time.Duration) {
	p.mu.Lock()
	m, forget := p.byID[id], false
	if m != nil {
		now := p.now()
		switch kind {
		case peering.Refused:
			p.heardRefused(m, body, age, now)
		case peering.Paused:
			p.heardPause(m, body, age, now)
		case peering.Restarted:
			forget = p.heardRestart(m, body, now)
		case peering.Asleep:
			forget = p.heardAsleep(m, body, age, now)
		case peering.Hint:
			if left, _ := p.duration(body, age); left > 0 {
				m.hinted = max(m.hinted, now+left)
			}
		}
		p.putLimits(m, now)
		p.watchEnds(m)
		p.putState(m, now)
	}
	p.mu.Unlock()
	if forget {
		p.forgetAll(id)
	}
	p.notify()
}

// duration reads a number of milliseconds, and returns what is left of it and of b.
func (p *pool) duration(b []byte, age time.Duration) (time.Duration, []byte) {
	ms, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil
	}
	most := max(p.cfg.Load().RetryAfterMax, p.cfg.Load().CoolMax, p.cfg.Load().BreakerOpen, 0)
	return min(time.Duration(min(ms, math.MaxInt32))*time.Millisecond, most) - age, b[n:]
}

func (p *pool) heardRefused(m *member, body []byte, age, now time.Duration) {
	left, b := p.duration(body, age)
	var names [2]string
	for i := range names {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) || size > maxName {
			return
		}
		names[i], b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	if left = min(left, p.cfg.Load().RetryAfterMax); left > 0 && p.cfg.Load().FullFor > 0 {
		p.refused(m, m.limitOf(party{names[0], names[1]}), now, left)
	}
}

func (p *pool) heardPause(m *member, body []byte, age, now time.Duration) {
	if left, _ := p.duration(body, age); min(left, p.cfg.Load().RetryAfterMax) > 0 {
		m.pause.Store(max(m.pause.Load(), int64(now+min(left, p.cfg.Load().RetryAfterMax))))
	}
}

func (p *pool) heardRestart(m *member, body []byte, now time.Duration) (forget bool) {
	if len(body) != 8 {
		return false
	}
	start := math.Float64frombits(binary.LittleEndian.Uint64(body))
	h := &m.history
	if start >= 0 {
		if slices.Contains(h.starts, start) {
			return false // it was seen here
		}
		h.began(start)
	} else if h.forgotten != 0 && now < h.forgotten+repeated {
		return false
	}
	h.forgotten = max(now, 1)
	return true
}

func (p *pool) heardAsleep(m *member, body []byte, age, now time.Duration) (forget bool) {
	if len(body) != 1 {
		return false
	}
	asleep := body[0] != 0
	fell := asleep && !m.history.asleep
	until := now - age + p.cfg.Load().Scrape.StaleAfter
	if asleep == m.history.asleep || until <= now {
		return false
	}
	m.history.asleep = asleep
	if !asleep {
		m.asleep.Store(0)
		p.slowStart(m, now)
		return false
	}
	m.asleep.Store(int64(until))
	p.watch(until)
	return fell
}
