package zmqsub

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// world is an engine, its connections and the machine that listens to it, with
// everything that can happen on the way between them.
type world struct {
	t          testing.TB
	pick       func(n int) int
	m          *machine
	replayable bool
	framed     int // what buffer the engine keeps, in messages

	// The engine. A message is its process and its number.
	process int
	log     []message
	clock   float64

	// The connection of the SUB.
	conn    int // the process at its other end, 0: none
	up      bool
	flight  []message
	closing bool
	redial  bool

	// The replay that was asked for last.
	asked   bool
	served  bool
	start   uint64
	replies []message
	marker  bool
	server  int

	// The index.
	held      []message
	suspended bool
	blank     bool
	trace     []string
}

func (w *world) logf(format string, a ...any) { w.trace = append(w.trace, fmt.Sprintf(format, a...)) }

func (w *world) apply(p message) bool {
	w.logf("apply %d/%d", p.sum>>32, p.seq)
	if w.m.state == Resyncing && !w.suspended {
		w.fail("%d/%d of a replay that is not over is believed at once", p.sum>>32, p.seq)
	}
	if len(p.payload) > 0 {
		return false
	}
	w.blank = false
	w.held = append(w.held, p)
	return true
}
func (w *world) reset()           { w.logf("reset"); w.held, w.blank, w.suspended = nil, true, false }
func (w *world) gap(_, _ uint64)  {}
func (w *world) reconnect()       { w.logf("reconnect"); w.redial = true }
func (w *world) hangUp()          { w.asked = false }
func (w *world) suspend(out bool) { w.suspended = out }
func (w *world) ask(start uint64, _ int) {
	w.logf("ask %d", start)
	w.asked, w.served, w.start, w.replies = true, false, start, nil
}
func (w *world) changed(from, to State, why string) { w.logf("%v -> %v: %s", from, to, why) }

func (w *world) publish(drop bool) {
	seq := uint64(len(w.log))
	w.clock++
	p := message{seq: seq, sum: uint64(w.process)<<32 | seq, time: w.clock}
	if w.pick(40) == 0 {
		p.payload = []byte("malformed")
	}
	w.log = append(w.log, p)
	if w.conn == w.process && !w.closing && !drop {
		w.flight = append(w.flight, p)
	}
}

func (w *world) restart() {
	w.process++
	w.log = nil
	if w.conn != 0 {
		w.closing = true
	}
}

// serve answers the replay, as the engine that is there now.
func (w *world) serve(lossy bool) {
	if !w.asked || w.served {
		return
	}
	w.served, w.server, w.marker = true, w.process, true
	first := max(0, len(w.log)-w.framed)
	for _, p := range w.log[first:] {
		if p.seq >= w.start && !(lossy && w.pick(8) == 0) {
			w.replies = append(w.replies, p)
		}
	}
	if lossy && w.pick(4) == 0 {
		w.marker = false
	}
}

func (w *world) step() {
	switch w.pick(12) {
	case 0, 1, 2:
		w.publish(w.pick(10) == 0)
	case 3:
		if w.pick(6) == 0 {
			w.restart()
		}
	case 4:
		if w.pick(10) == 0 && w.conn != 0 {
			w.closing = true // the network's fault
		}
	case 5:
		w.serve(true)
	case 6, 7:
		w.reply()
	case 8:
		switch w.pick(20) {
		case 0:
			w.m.stale()
		case 1:
			w.m.confirm()
		}
	default:
		w.deliver()
	}
	w.check()
}

func (w *world) reply() {
	switch {
	case !w.asked || !w.served:
		if w.asked && w.pick(10) == 0 {
			w.asked = false
			w.m.ended(endEarly)
		}
	case len(w.replies) > 0 && (w.server == w.process || w.pick(3) > 0):
		p := w.replies[0]
		w.replies = w.replies[1:]
		w.m.replayed(p)
	case len(w.replies) > 0 || !w.marker:
		w.asked = false
		w.m.ended(endEarly)
	default:
		w.asked = false
		w.m.ended(endMarker)
	}
}

func (w *world) deliver() {
	switch {
	case w.redial:
		w.redial, w.conn, w.closing, w.flight, w.up = false, 0, false, nil, false
		w.m.down("redial")
	case w.conn == 0:
		w.conn, w.closing = w.process, false
		w.logf("up %d", w.conn)
		w.m.up()
	case len(w.flight) > 0:
		p := w.flight[0]
		w.flight = w.flight[1:]
		if w.m.state != Resyncing && w.pick(30) == 0 {
			w.logf("missed %d/%d", p.sum>>32, p.seq)
			w.m.missed()
			return
		}
		w.logf("live %d/%d", p.sum>>32, p.seq)
		w.m.live(p)
	case w.closing:
		w.conn, w.closing = 0, false
		w.m.down("lost")
	}
}

func (w *world) trusted() bool { return !w.blank && !w.suspended }

// check holds the index against what it may hold when it is trusted: a run of
// messages of one process, without a hole.
func (w *world) check() {
	if !w.trusted() {
		if w.m.state == Live || w.m.state == Partial {
			w.fail("%v, but not trusted", w.m.state)
		}
		return
	}
	if w.m.state == Resyncing || w.m.state == Cold {
		w.fail("trusted while %v", w.m.state)
	}
	for i := 1; i < len(w.held); i++ {
		if w.held[i].sum != w.held[i-1].sum+1 {
			w.fail("%d/%d follows %d/%d", w.held[i].sum>>32, w.held[i].seq, w.held[i-1].sum>>32, w.held[i-1].seq)
		}
	}
	if w.m.state == Live && w.held[0].seq != 0 {
		w.fail("live, and begins at %d", w.held[0].seq)
	}
	if p := int(w.held[0].sum >> 32); (w.m.state == Live || w.m.state == Partial) && p < w.conn {
		w.fail("trusted for process %d on a connection to %d", p, w.conn)
	}
}

func (w *world) fail(format string, a ...any) {
	w.t.Helper()
	for _, l := range w.trace[max(0, len(w.trace)-60):] {
		w.t.Log(l)
	}
	w.t.Fatalf(format, a...)
}

// settle lets everything arrive, and one message more.
func (w *world) settle() {
	pick := w.pick
	w.pick = func(n int) int { return n - 1 }
	defer func() { w.pick = pick }()
	drain := func() {
		for range 200 {
			for w.redial || w.conn == 0 || len(w.flight) > 0 || w.closing {
				w.deliver()
				w.check()
			}
			w.serve(false)
			w.reply()
			w.check()
			if !w.asked && !w.redial && w.conn != 0 && len(w.flight) == 0 && !w.closing {
				return
			}
		}
		w.fail("it does not settle: asked %v, state %v", w.asked, w.m.state)
	}
	drain()
	w.publish(false)
	drain()
	if !w.trusted() {
		w.fail("not trusted in the end: %v", w.m.state)
	}
	if last := w.held[len(w.held)-1]; last.sum != w.log[len(w.log)-1].sum {
		w.fail("ends with %d/%d of %d/%d", last.sum>>32, last.seq, w.process, len(w.log)-1)
	}
	if w.m.state != Live && w.m.state != Partial {
		w.fail("%v in the end", w.m.state)
	}
}

func history(t testing.TB, pick func(int) int, steps int) *world {
	w := &world{t: t, pick: pick, process: 1, blank: true, framed: 1 + pick(30)}
	w.replayable = pick(4) > 0
	w.m = newMachine(w, w.replayable, 1+pick(12), 1<<20)
	for range steps {
		w.step()
	}
	w.settle()
	return w
}

// TestMachineAnyHistory lets everything happen that can, in any order.
func TestMachineAnyHistory(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2_000
	}
	ends := make(map[State]int)
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		w := history(t, r.IntN, 20+r.IntN(300))
		ends[w.m.state]++
	}
	if ends[Live] < n/50 || ends[Partial] < n/50 {
		t.Errorf("how the histories ended: %v", ends)
	}
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte("\x05\x01\x02\x00\x09\x09\x05\x06\x06\x09"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		history(t, func(n int) int {
			if len(data) == 0 {
				return n - 1
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}, len(data)/2)
	})
}
