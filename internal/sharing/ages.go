package sharing

import "github.com/warmroute/router/internal/peering"

// age is how long a target holds a prompt after it was sent there last, by the denials of engines. It grows slowly,
// because what is not believed is not asked for.
type age struct {
	most stamp // 0: not known
	at   stamp // when most was learned
}

const (
	leastAge = stamp(peering.LeastAge / stampUnit)
	// ageShrink is the part by which most is less than the age of the denied prompt.
	ageShrink = 8
	// ageGrow is the part of the time that most grows by, and of itself if it is confirmed.
	ageGrow = 8
)

func (a *age) now(now stamp) stamp { return a.most + (now-min(a.at, now))/ageGrow }

func (t *table) room(target uint16) {
	if n := int(target) + 1; len(t.horizon) < n {
		t.horizon = append(t.horizon, make([]stamp, n-len(t.horizon))...)
		t.lost = append(t.lost, make([]stamp, n-len(t.lost))...)
		t.ages = append(t.ages, make([]age, n-len(t.ages))...)
	}
}

// setHorizon drops what was said of a target before s, when it lost its cache.
func (t *table) setHorizon(target uint16, s stamp) {
	t.room(target)
	t.lost[target] = max(t.lost[target], s)
	t.ages[target] = age{}
	t.horizon[target] = t.lost[target]
}

// deny learns that a target did not hold what it was sent so long ago.
func (t *table) deny(target uint16, old, now stamp) {
	if old < leastAge {
		return
	}
	t.room(target)
	a := &t.ages[target]
	most := max(old-old/ageShrink, leastAge)
	if a.most != 0 && a.now(now) <= most {
		return
	}
	*a = age{most, now}
	t.horizon[target] = max(t.lost[target], now-most)
}

// confirm learns that a target held what it was sent so long ago.
func (t *table) confirm(target uint16, old, now stamp) {
	if int(target) >= len(t.ages) || t.ages[target].most == 0 {
		return
	}
	a := &t.ages[target]
	if most := a.now(now); 2*old >= most {
		*a = age{most + most/ageGrow, now}
	}
}

// tick moves the horizons on.
func (t *table) tick(now stamp) {
	if now <= t.now {
		return
	}
	t.now = now
	for i := range t.ages {
		if a := &t.ages[i]; a.most != 0 {
			t.horizon[i] = max(t.lost[i], now-min(a.now(now), now))
		}
	}
}

// backs has the last marks that were taken back, so that a snapshot of a peer that does not know it yet does not bring
// them again.
type backs struct {
	at   map[back]stamp
	ring []back
	next int
}

type back struct {
	mark   Mark
	target uint16
}

const maxBacks = 1024

func (b *backs) add(m Mark, target uint16, at stamp) {
	if b.at == nil {
		b.at, b.ring = map[back]stamp{}, make([]back, maxBacks)
	}
	x := back{m, target}
	if _, ok := b.at[x]; !ok {
		delete(b.at, b.ring[b.next])
		b.ring[b.next] = x
		b.next = (b.next + 1) % maxBacks
	}
	b.at[x] = at
}

// has reports whether a mark that was sent at a time was taken back.
func (b *backs) has(m Mark, target uint16, sent stamp) bool {
	at, ok := b.at[back{m, target}]
	return ok && sent <= at+2 // by another clock
}
