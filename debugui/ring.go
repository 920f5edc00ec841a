package debugui

import "time"

// ring keeps the last size values that were added, which is 1 or more.
type ring[T any] struct {
	kept []T
	next int // the index of the next one, once kept is full
	size int
}

func newRing[T any](size int) ring[T] { return ring[T]{size: size} }

// add adds v and returns the value that it replaced.
func (r *ring[T]) add(v T) (gone T, full bool) {
	if len(r.kept) < r.size {
		r.kept = append(r.kept, v)
		return gone, false
	}
	gone = r.kept[r.next]
	r.kept[r.next] = v
	r.next = (r.next + 1) % r.size
	return gone, true
}

// oldest returns the value that the next add will replace.
func (r *ring[T]) oldest() (v T, full bool) {
	if len(r.kept) < r.size {
		return v, false
	}
	return r.kept[r.next], true
}

// newest calls f with the values, the newest first, until it returns false.
func (r *ring[T]) newest(f func(T) bool) {
	for i := range r.kept {
		if !f(r.kept[(r.next+len(r.kept)-1-i)%len(r.kept)]) {
			return
		}
	}
}

// The time that is shown: so many spans of so long.
const (
	span  = time.Second
	spans = 120
)

// clock numbers spans.
func clock(t time.Time) int64 { return t.UnixNano() / int64(span) }

// flow counts the picks of one span.
type flow struct {
	picks          uint32
	cached, length uint64 // tokens; four bytes are taken for one
}

func (f *flow) add(cached, length uint64) {
	f.picks++
	f.cached += cached
	f.length += length
}

func (f *flow) sum(o flow) {
	f.picks += o.picks
	f.cached += o.cached
	f.length += o.length
}

// share is the cached share in thousandths, -1 if it is unknown.
func (f flow) share() int {
	if f.length == 0 {
		return -1
	}
	return int(min(f.cached, f.length) * 1000 / f.length)
}

// series is a flow over the last spans.
type series struct {
	spans [spans]flow
	last  int64 // the newest span
}

// at drops everything older than the spans that end with now.
func (s *series) at(now int64) {
	for n := max(s.last+1, now-spans+1); n <= now; n++ {
		s.spans[n%spans] = flow{}
	}
	s.last = max(s.last, now)
}

func (s *series) add(now int64, cached, length uint64) {
	s.at(now)
	s.spans[now%spans].add(cached, length)
}

// each calls f with the spans that end with now, the oldest first. It changes
// nothing.
func (s *series) each(now int64, f func(flow)) {
	for n := now - spans + 1; n <= now; n++ {
		if n > s.last || n <= s.last-spans {
			f(flow{})
		} else {
			f(s.spans[n%spans])
		}
	}
}

// total is the sum of the newest n spans that end with now.
func (s *series) total(now int64, n int) (t flow) {
	i := 0
	s.each(now, func(f flow) {
		if i++; i > spans-n {
			t.sum(f)
		}
	})
	return t
}

// sizeNames are the classes of prompt sizes, in tokens.
var sizeNames = [...]string{"under 1K", "1–4K", "4–16K", "16–64K", "64K and more"}

const sizes = len(sizeNames)

func sizeOf(tokens uint64) int {
	switch {
	case tokens < 1<<10:
		return 0
	case tokens < 4<<10:
		return 1
	case tokens < 16<<10:
		return 2
	case tokens < 64<<10:
		return 3
	}
	return 4
}

// bySize counts the picks for each size of prompts, in the last one to two
// halves of the displayed time.
type bySize struct {
	half     int64 // the number of the newest half
	now, old [sizes]flow
}

func (b *bySize) at(now int64) {
	half := now / (spans / 2)
	switch {
	case half == b.half+1:
		b.old, b.now = b.now, [sizes]flow{}
	case half > b.half:
		b.old, b.now = [sizes]flow{}, [sizes]flow{}
	}
	b.half = max(b.half, half)
}

func (b *bySize) add(now int64, cached, length uint64) {
	b.at(now)
	b.now[sizeOf(length)].add(cached, length)
}
