package sharing

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is gateways on one bus in virtual time, with the faults of a bus.
type world struct {
	t     *testing.T
	r     *rand.Rand
	now   time.Time
	nodes []*Node // nil: down
	stops []func()
	parts []int // the gateways with equal numbers hear each other
	lag   func() time.Duration
	loss  float64
	twice float64
	mail  mailHeap
	serve map[string]service
	recv  []func([]byte)
	next  uint64
	wire  func([]byte) // sees all frames and replies
	max   int
}

type service struct {
	g      int
	answer func([]byte) []byte
}

type mail struct {
	at     time.Time
	serial int
	to     int
	data   []byte
	life   *Node
}

type mailHeap []mail

func (h mailHeap) Len() int { return len(h) }
func (h mailHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].serial < h[j].serial
}
func (h mailHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *mailHeap) Push(x any)   { *h = append(*h, x.(mail)) }
func (h *mailHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

type port struct {
	w *world
	g int
}

var errNobody = errors.New("nobody answers")

func (p port) Publish(_ string, data []byte) error {
	w := p.w
	if w.wire != nil {
		w.wire(data)
	}
	for g := range w.nodes {
		if w.nodes[g] == nil || w.parts[g] != w.parts[p.g] || w.r.Float64() < w.loss {
			continue
		}
		for again := true; again; again = w.r.Float64() < w.twice {
			w.next++
			heap.Push(&w.mail, mail{w.now.Add(w.lag()), int(w.next), g, append([]byte(nil), data...), w.nodes[g]})
		}
	}
	return nil
}

func (p port) Subscribe(_ string, receive func([]byte)) (func(), error) {
	p.w.recv[p.g] = receive
	return func() {}, nil
}

func (p port) Serve(subject string, answer func([]byte) []byte) (func(), error) {
	p.w.serve[subject] = service{p.g, answer}
	return func() { delete(p.w.serve, subject) }, nil
}

func (p port) Request(_ context.Context, subject string, data []byte) ([]byte, error) {
	s, ok := p.w.serve[subject]
	if !ok || p.w.parts[s.g] != p.w.parts[p.g] {
		return nil, errNobody
	}
	reply := s.answer(append([]byte(nil), data...))
	if p.w.wire != nil {
		p.w.wire(reply)
	}
	if len(reply) > 256<<10 {
		p.w.t.Errorf("a reply of %d bytes", len(reply))
	}
	return reply, nil
}

func newWorld(t *testing.T, seed uint64, gateways int) *world {
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0), nodes: make([]*Node, gateways),
		parts: make([]int, gateways), lag: func() time.Duration { return 0 }, serve: map[string]service{},
		recv: make([]func([]byte), gateways), stops: make([]func(), gateways), max: 1 << 16,
	}
	for g := range gateways {
		w.start(g)
	}
	return w
}

func testKey(t testing.TB) *Key {
	k, err := NewKey("a secret of a fleet", "fleet")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// start starts gateway g, as a new process.
func (w *world) start(g int) {
	w.next++
	w.nodes[g] = New(Config{
		Bus: port{w, g}, Key: testKey(w.t), Subject: "fleet", Name: fmt.Sprint("gateway-", g), ID: w.next, MaxMarks: w.max,
		Interval: 5 * time.Millisecond, Hello: 250 * time.Millisecond, Silence: time.Second, MaxLag: 50 * time.Millisecond,
		LagFor: time.Second, Cache: true, Load: true, Now: func() time.Time { return w.now }, Spawn: func(f func()) { f() },
	})
	stop, err := w.nodes[g].Open()
	if err != nil {
		w.t.Fatal(err)
	}
	w.stops[g] = stop
}

func (w *world) kill(g int) {
	w.stops[g]()
	w.nodes[g] = nil
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		for _, n := range w.nodes {
			if n != nil {
				n.Poll()
			}
		}
		w.deliver()
		w.now = w.now.Add(time.Millisecond)
	}
}

func (w *world) deliver() {
	for len(w.mail) > 0 && !w.mail[0].at.After(w.now) {
		m := heap.Pop(&w.mail).(mail)
		if w.nodes[m.to] == m.life {
			w.recv[m.to](m.data)
		}
	}
}

// text is a text that shares whole chunks with others.
func (w *world) text() string {
	var b strings.Builder
	for range 1 + w.r.IntN(6) {
		b.WriteString(strings.Repeat(string(rune('a'+w.r.IntN(3))), Chunk))
	}
	b.WriteString(strings.Repeat("rest", w.r.IntN(200)))
	return b.String()
}

// model is the naive knowledge of the fleet: who said of which beginning that a target holds it.
type model map[string]map[string]map[*Node]bool

func (m model) say(n *Node, id, scope, text string) {
	for i := Chunk; i <= len(text); i += Chunk {
		k := scope + "\x00" + text[:i]
		if m[k] == nil {
			m[k] = map[string]map[*Node]bool{}
		}
		if m[k][id] == nil {
			m[k][id] = map[*Node]bool{}
		}
		m[k][id][n] = true
	}
}

func (m model) forget(id string) {
	for _, ids := range m {
		delete(ids, id)
	}
}

// held returns the leading bytes that a target holds by the word of n, and by that of any.
func (m model) held(n *Node, id, scope, text string) (own, all int) {
	for i := Chunk; i <= len(text); i += Chunk {
		by := m[scope+"\x00"+text[:i]][id]
		if len(by) > 0 {
			all = i
		}
		if by[n] {
			own = i
		}
	}
	return own, all
}

var ids = []string{"a", "b", "c", "d", "e"}

// Several gateways over a bus without lag, each with the record of its own prompts, answer as one record of all of
// them, rounded down to whole chunks.
func TestOracle(t *testing.T) {
	for seed := range uint64(8) {
		w := newWorld(t, seed, 2+int(seed%4))
		w.run(10 * time.Millisecond)
		m := model{}
		for range 300 {
			n := w.nodes[w.r.IntN(len(w.nodes))]
			text, id, scope := w.text(), ids[w.r.IntN(len(ids))], fmt.Sprint("model", w.r.IntN(2))
			switch w.r.IntN(12) {
			case 0:
				n.Forget(id)
				w.run(130 * time.Millisecond) // what is sent in the same instant counts as before it
				m.forget(id)
			case 1: // it fails, and alone had added its end
				text += strings.Repeat(fmt.Sprint("x", w.r.Uint64()), Chunk/4)
				c := n.Chain(scope, text)
				n.Sent(id, c)
				w.run(6 * time.Millisecond)
				n.Unsent(id, c)
				fallthrough
			case 2: // nothing is sent
			case 3:
				n.Sent(id, n.Chain(scope, text))
				more := w.text()
				c := n.Chain(scope, text)
				if longer := n.Extend(c, text, more); longer != nil {
					n.More(id, longer)
				}
				m.say(n, id, scope, text+more)
			default:
				n.Sent(id, n.Chain(scope, text))
				m.say(n, id, scope, text)
			}
			w.run(6 * time.Millisecond)
			for _, n := range w.nodes {
				p := w.text()
				got := make([]int, len(ids))
				n.Match(n.Chain(scope, p), ids, got, 1<<15)
				for i, id := range ids {
					if own, want := m.held(n, id, scope, p); max(own, got[i]) != want {
						t.Fatalf("seed %d: %s of %d bytes: %d, or %d of its own, want %d", seed, id, len(p), got[i], own, want)
					}
				}
			}
		}
	}
}

func fact48(k *Key, m Mark, id string) string { return fmt.Sprintf("%012x of %012x", m, k.tag(id)) }

// everything returns all facts of a node's table.
func (n *Node) everything() map[string]bool {
	all := map[string]bool{}
	n.table.each(func(m Mark, k uint16, _ stamp) { all[fmt.Sprintf("%012x of %012x", m, n.targets.tagOf(k))] = true })
	return all
}

// Frames are lost, doubled, late and out of order, the fleet is parted, gateways die and start again: once that is
// over, all know what those who live have sent, and nothing that they took back. (What a gateway that died had sent may
// be known to some alone.)
func TestChaosConverges(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(t, seed, 4)
		w.lag = func() time.Duration { return time.Duration(w.r.IntN(40)) * time.Millisecond }
		w.loss, w.twice = 0.2, 0.2
		w.run(time.Second)
		m, back := model{}, map[string]*Node{}
		for range 150 {
			g := w.r.IntN(len(w.nodes))
			n := w.nodes[g]
			text, id := w.text()+fmt.Sprint(w.r.IntN(50)), ids[w.r.IntN(len(ids))]
			text = strings.Repeat(fmt.Sprint(w.r.IntN(9)), Chunk) + text
			switch w.r.IntN(40) {
			case 0:
				for i := range w.parts {
					w.parts[i] = w.r.IntN(2)
				}
			case 1:
				clear(w.parts)
			case 2:
				w.kill(g)
				w.run(time.Duration(w.r.IntN(1500)) * time.Millisecond)
				w.start(g)
			case 3, 4:
				c := n.Chain("m", strings.Repeat(fmt.Sprint("x", w.r.Uint64()), Chunk/4)) // nobody else sends it
				n.Sent(id, c)
				w.run(time.Duration(w.r.IntN(20)) * time.Millisecond)
				n.Unsent(id, c)
				back[fact48(n.cfg.Key, c.Marks[len(c.Marks)-1], id)] = n
			default:
				n.Sent(id, n.Chain("m", text))
				if m[text] == nil {
					m[text] = map[string]map[*Node]bool{}
				}
				if m[text][id] == nil {
					m[text][id] = map[*Node]bool{}
				}
				m[text][id][n] = true
			}
			w.run(time.Duration(w.r.IntN(60)) * time.Millisecond)
		}
		clear(w.parts)
		w.loss, w.twice = 0, 0
		w.run(20 * time.Second)
		key, all := testKey(t), make([]map[string]bool, len(w.nodes))
		for g, n := range w.nodes {
			all[g] = n.everything()
		}
		for text, targets := range m {
			marks := key.Chain("m", text).Marks
			for id, by := range targets {
				x := fact48(key, marks[len(marks)-1], id)
				for n := range by {
					for g := range all {
						if slices.Contains(w.nodes, n) && !all[g][x] {
							t.Fatalf("seed %d: gateway %d does not know %s of live gateway %s", seed, g, x, n.cfg.Name)
						}
					}
				}
			}
		}
		for x, n := range back {
			for g := range all {
				if slices.Contains(w.nodes, n) && all[g][x] {
					t.Fatalf("seed %d: gateway %d knows %s, which live gateway %s took back", seed, g, x, n.cfg.Name)
				}
			}
		}
		for g, n := range w.nodes {
			if s := n.State(); s.Bad != 0 || len(s.Peers) < 3 || !s.Joined {
				t.Errorf("seed %d: gateway %d: %+v", seed, g, s)
			}
		}
	}
}

// A gateway that starts late learns what the others know, the newest first, and its prompts count as the others'.
func TestJoin(t *testing.T) {
	w := newWorld(t, 1, 3)
	w.kill(2)
	w.run(5 * time.Second)
	for i := range 3000 {
		n := w.nodes[i%2]
		n.Sent(ids[i%5], n.Chain("m", fmt.Sprintf("%06d", i)+strings.Repeat("x", 3*Chunk)))
		w.run(2 * time.Millisecond)
	}
	w.start(2)
	w.run(3 * time.Second)
	want, got := w.nodes[0].everything(), w.nodes[2].everything()
	for x := range want {
		if !got[x] {
			t.Fatalf("it has %d of %d facts", len(got), len(want))
		}
	}
	s := w.nodes[2].State()
	if !s.Joined || s.Pages != 1 || s.Bad != 0 {
		t.Errorf("%+v", s)
	}
	for _, n := range w.nodes[:2] {
		if s := n.State(); s.Pages != 0 {
			t.Errorf("an old one asked for a snapshot: %+v", s)
		}
	}
}

// The gauges of peers add up, vanish with a silent peer, and come back; the bus that is too slow takes all away.
func TestGauges(t *testing.T) {
	w := newWorld(t, 1, 3)
	lag := 2 * time.Millisecond
	w.lag = func() time.Duration { return lag }
	locals := make([]*Local, 3)
	for g, n := range w.nodes {
		locals[g] = n.Local("a")
		locals[g].Set(int64(g+1), 100, 1000)
	}
	w.run(100 * time.Millisecond)
	elsewhere := func(g int) Gauge { return w.nodes[g].Elsewhere([]string{"a"}, nil)[0] }
	for g, n := range []int64{5, 4, 3} {
		want := Gauge{InFlight: n, Prefill: 200, Context: 2000}
		if got := elsewhere(g); got != want {
			t.Fatalf("gateway %d sees %+v, want %+v", g, got, want)
		}
	}
	w.parts[2] = 1
	w.run(1200 * time.Millisecond)
	if got := elsewhere(0); got.InFlight != 2 {
		t.Errorf("without the third: %+v", got)
	}
	locals[2].Set(7, 0, 0)
	w.parts[2] = 0
	w.run(1300 * time.Millisecond)
	if got := elsewhere(0); got.InFlight != 9 {
		t.Errorf("with the third again: %+v", got)
	}
	lag = 100 * time.Millisecond
	w.run(1500 * time.Millisecond)
	if got := elsewhere(0); got.InFlight != 0 || w.nodes[0].LoadShared() {
		t.Errorf("with a slow bus: %+v", got)
	}
	if s := w.nodes[0].State(); s.Lag < 100*time.Millisecond || s.LoadShared {
		t.Errorf("with a slow bus: %+v", s)
	}
	lag = 2 * time.Millisecond
	w.run(1500 * time.Millisecond)
	if got := elsewhere(0); got.InFlight != 9 || !w.nodes[0].LoadShared() {
		t.Errorf("with a quick bus again: %+v", got)
	}
	w.nodes[1].Bye()
	w.kill(1)
	w.run(10 * time.Millisecond)
	if got := elsewhere(0); got.InFlight != 7 {
		t.Errorf("after a bye: %+v", got)
	}
	w.start(1) // at the same address, with nothing in flight
	w.run(time.Second)
	if got := elsewhere(0); got.InFlight != 7 {
		t.Errorf("after a restart: %+v", got)
	}
	w.parts[0] = 1 // the bus is gone for the first
	w.run(1500 * time.Millisecond)
	if got := elsewhere(0); got.InFlight != 0 {
		t.Errorf("alone: %+v", got)
	}
}

// A lost gauge is repeated, although nothing changes.
func TestLostGauge(t *testing.T) {
	w := newWorld(t, 3, 2)
	w.run(100 * time.Millisecond)
	w.loss = 1
	w.nodes[0].Local("a").Set(3, 0, 0)
	w.run(20 * time.Millisecond)
	w.loss = 0
	w.run(1500 * time.Millisecond)
	if got := w.nodes[1].Elsewhere([]string{"a"}, nil)[0]; got.InFlight != 3 {
		t.Errorf("%+v", got)
	}
}

// Nothing of a prompt, a scope or a target's name is on the wire.
func TestCanary(t *testing.T) {
	w := newWorld(t, 1, 3)
	var seen strings.Builder
	w.wire = func(b []byte) { seen.Write(b) }
	canaries := []string{"CANARY-PROMPT", "CANARY-SCOPE", "CANARY-TARGET", "CANARY-REPLY", "CANARY-SECRET"}
	for i := range 50 {
		n := w.nodes[i%3]
		text := strings.Repeat(canaries[0]+fmt.Sprint(i), 300)
		c := n.Chain(canaries[1], text)
		n.Sent(canaries[2], c)
		n.More(canaries[2], n.Extend(c, text, strings.Repeat(canaries[3], 200)))
		n.Local(canaries[2]).Set(int64(i), 5, 6)
		w.run(10 * time.Millisecond)
	}
	w.kill(2)
	w.start(2)
	w.run(3 * time.Second)
	if w.nodes[2].State().Pages == 0 {
		t.Error("no snapshot was taken")
	}
	for _, c := range canaries {
		for i := 0; i+6 <= len(c); i++ {
			if strings.Contains(seen.String(), c[i:i+6]) {
				t.Fatalf("%q is on the wire", c[i:i+6])
			}
		}
	}
}

// Targets come and go for ever: the numbers of those that are long gone are used again; those that stay keep theirs.
func TestTargetsComeAndGo(t *testing.T) {
	w := newWorld(t, 1, 2)
	stays := w.nodes[1].Sum("stays")
	local := w.nodes[0].Local("stays")
	text := strings.Repeat("x", 2*Chunk)
	for i := range maxTarget + maxTarget/4 {
		id := fmt.Sprint("pod-", i)
		n := w.nodes[0]
		n.Sent(id, n.Chain("m", text))
		if i%50 == 0 {
			l := n.Local(id)
			l.Set(1, 0, 0)
			w.run(7 * time.Millisecond)
			l.Set(0, 0, 0)
		}
		if i%1000 == 0 {
			w.now = w.now.Add(11 * time.Minute)
			w.run(2 * time.Second)
		}
	}
	local.Set(5, 0, 0)
	n := w.nodes[0]
	n.Sent("last", n.Chain("m", text))
	w.run(time.Second)
	if g := stays.Load(); g.InFlight != 5 {
		t.Errorf("the one that stays has %+v", g)
	}
	held := make([]int, 2)
	w.nodes[1].Match(w.nodes[1].Chain("m", text), []string{"last", "pod-1"}, held, 1<<15)
	if held[0] != 2*Chunk || held[1] != 0 {
		t.Errorf("the last holds %d, one that is long gone %d", held[0], held[1])
	}
	if s := w.nodes[1].State(); s.Targets > maxTarget || s.Bad != 0 {
		t.Errorf("%+v", s)
	}
}
