package loadview

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
)

// driver runs one history against a View and the model.
type driver struct {
	t     *testing.T
	v     *View
	m     *model
	clock time.Time
	ops   []byte
	reqs  []*modelRequest
	told  map[string]router.State
	forgs []string
	trips int

	panicking bool // as Trace.PanicChanged reported
	panics    int  // steps in a panic
}

func (d *driver) next() int {
	if len(d.ops) == 0 {
		return 0
	}
	b := d.ops[0]
	d.ops = d.ops[1:]
	return int(b)
}

var errLook = errors.New("only looking")

func drive(t *testing.T, ops []byte) *driver {
	d := &driver{t: t, m: &model{}, clock: time.Unix(1000, 0), ops: ops, told: map[string]router.State{}}
	v, err := New(Config{
		CoolAfter: modelCoolAfter, CoolBase: modelBase, CoolMax: modelMax, Jitter: -1, RetryAfterMax: modelRetryMax,
		FullFor: -1,
		Breaker: true, BreakerFailures: modelFailures, BreakerOpen: modelOpen,
		Now: func() time.Time { return d.clock },
		Trace: Trace{
			Joined: func(m Member) {
				d.told[m.ID] = router.Ready
				if m.Draining {
					d.told[m.ID] = router.Draining
				}
			},
			PanicChanged: func(_ *View, on bool) {
				if d.panicking == on {
					t.Fatalf("PanicChanged(%v) twice", on)
				}
				d.panicking = on
			},
			Left:   func(id string, _ int) { delete(d.told, id) },
			Forget: func(id string) { d.forgs = append(d.forgs, id) },
			StateChanged: func(id string, from, to router.State) {
				if d.told[id] != from || from == to {
					t.Fatalf("StateChanged(%q, %v, %v) after %v", id, from, to, d.told[id])
				}
				d.told[id] = to
				if to == router.Tripped {
					d.trips++
				}
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.v = v
	for len(d.ops) > 0 {
		d.step()
		d.check()
	}
	for _, r := range d.reqs { // the end of every history: all settled
		o := router.Outcome{Stage: router.Canceled}
		r.flight.Done(o)
		d.m.done(r, o)
	}
	d.check()
	for _, r := range d.reqs {
		m := r.flight.(*flight).member
		if in, p := m.inFlight.Load(), m.prefill.Load(); in != 0 || p != 0 {
			t.Fatalf("%q ends with %d in flight, %d to prefill", m.id, in, p)
		}
	}
	return d
}

func (d *driver) step() {
	switch op := d.next() % 16; op {
	case 0:
		d.set(d.next())
	case 1, 2, 3, 4, 5:
		d.choose(d.next(), d.next())
	case 6:
		if r := d.request(); r != nil {
			r.flight.FirstToken()
			d.m.first(r)
		}
	case 7, 8, 9, 10, 11, 12:
		if r := d.request(); r != nil {
			o := outcomes[d.next()%len(outcomes)]
			d.m.done(r, o)
			r.flight.Done(o)
		}
	case 13:
		by := time.Duration(d.next()) * 100 * time.Millisecond
		d.clock = d.clock.Add(by)
		d.m.advance(by)
	case 14:
		id, on := string(rune('a'+d.next()%5)), d.next()%2 == 1
		x := d.m.find(id)
		var err error
		if op2 := d.next() % 2; op2 == 0 {
			err = d.v.SetDraining(id, on)
			if x != nil {
				x.asked = on
			}
		} else {
			err = d.v.SetUnhealthy(id, on)
			if x != nil {
				x.unhealthy = on
			}
		}
		if (x == nil) != errors.Is(err, ErrUnknown) || x != nil && err != nil {
			d.t.Fatalf("flag of %q, a member: %v: %v", id, x != nil, err)
		}
	case 15:
		id, n := string(rune('a'+d.next()%5)), d.next()%8-2
		err := d.v.SetQueued(id, n)
		x := d.m.find(id)
		if x != nil {
			x.queued = max(n, -1)
		}
		if (x == nil) != (err != nil) {
			d.t.Fatalf("SetQueued(%q): %v", id, err)
		}
	}
}

var outcomes = []router.Outcome{
	{Stage: router.Finished, Status: 200},
	{Stage: router.Failed, Status: 503},
	{Stage: router.Failed, Err: errors.New("refused")},
	{Stage: router.Failed, Status: 500},
	{Stage: router.Canceled},
	{Stage: router.Failed, Status: 404},
	{Stage: router.Failed, Status: 429, RetryAfter: 3 * time.Second},
	{Stage: router.Failed, Status: 429},
	{Stage: router.Failed, Status: 503, RetryAfter: time.Hour},
	{Stage: router.Failed, Status: 408},
	{Stage: router.Failed, Status: 500},
	{Stage: router.Failed, Err: errDial},
	{Stage: router.Failed, Err: errDial},
}

func (d *driver) request() *modelRequest {
	n := d.next()
	if len(d.reqs) == 0 {
		return nil
	}
	return d.reqs[max(len(d.reqs)-1-n%12, 0)] // the newest: histories with a point
}

// set makes the members those of mask, in an order that it turns too.
func (d *driver) set(mask int) {
	var ms []Member
	for i := range 5 {
		i = (i + mask>>5) % 5
		if mask>>i&1 == 1 {
			ms = append(ms, Member{ID: string(rune('a' + i)), Weight: float64(mask % 3), Ref: mask, Draining: mask>>5 == i})
		}
	}
	if mask%7 == 0 { // half a Set is none
		for _, bad := range [][]Member{append(ms[:len(ms):len(ms)], Member{}), {{ID: "z"}, {ID: "z"}}} {
			if d.v.Set(bad) == nil {
				d.t.Fatal("a bad Set passed")
			}
		}
		d.check()
	}
	var gone []string
	for _, x := range d.m.members {
		stays := false
		for _, c := range ms {
			stays = stays || c.ID == x.cfg.ID
		}
		if !stays {
			gone = append(gone, x.cfg.ID)
		}
	}
	var next []*modelMember
	for _, c := range ms {
		x := d.m.find(c.ID)
		if x == nil {
			x = &modelMember{live: map[*modelRequest]bool{}, queued: -1}
		}
		x.cfg = c
		next = append(next, x)
	}
	d.forgs = nil
	if err := d.v.Set(ms); err != nil {
		d.t.Fatal(err)
	}
	d.m.members = next
	if diff := cmp.Diff(gone, d.forgs); diff != "" {
		d.t.Fatalf("forgotten (-want +got):\n%s", diff)
	}
}

func (d *driver) choose(which, what int) {
	dec := router.Decision{Cached: what % 5 * 100, Length: what * 7}
	prefill := max(dec.Length-dec.Cached, 0) / 4
	if which&16 != 0 {
		dec.Unit = router.Tokens
		prefill = max(dec.Length-dec.Cached, 0)
	}
	var chosen string
	_, f, err := d.v.Choose(d.t.Context(), func(ts []router.Target) (router.Decision, error) {
		switch {
		case which&0xe0 == 0xe0:
			chosen = "nobody"
			dec.Target.ID = chosen
			return dec, nil
		case len(ts) == 0:
			return dec, errLook
		}
		i := which % len(ts)
		if which&32 != 0 { // mostly a Ready one, as strategies do
			for range ts {
				if ts[i].State == router.Ready {
					break
				}
				i = (i + 1) % len(ts)
			}
		}
		chosen = ts[i].ID
		dec.Target = ts[i]
		for j := range ts { // what pick must not do
			ts[j] = router.Target{ID: "scribble", State: router.Draining}
		}
		return dec, nil
	})
	switch {
	case chosen == "nobody":
		if err == nil || f != nil {
			d.t.Fatal("a choice that was not offered passed")
		}
	case chosen == "":
		if err != errLook || f != nil {
			d.t.Fatalf("no member: %v, %v", f, err)
		}
	default:
		if err != nil {
			d.t.Fatal(err)
		}
		x := d.m.find(chosen)
		d.m.tick++
		r := &modelRequest{flight: f, member: x, sent: d.m.tick, since: d.m.tick, prefill: prefill}
		if x.tripped && x.open == 0 && x.probe == nil {
			x.probe = r
		}
		yes, _ := d.m.panics()
		r.spared = yes && x.out() && !x.cfg.Draining && !x.asked && !x.unhealthy
		x.live[r] = true
		d.reqs = append(d.reqs, r)
	}
}

func (d *driver) check() {
	d.t.Helper()
	var want, snap, offered []router.Target
	for _, x := range d.m.members {
		want = append(want, d.m.target(x))
	}
	for _, s := range d.v.Snapshot() {
		snap = append(snap, s.Target)
	}
	_, _, err := d.v.Choose(d.t.Context(), func(ts []router.Target) (router.Decision, error) {
		offered = append(offered, ts...)
		return router.Decision{}, &router.NoTargetError{Offered: len(ts)}
	})
	if diff := cmp.Diff(want, snap); diff != "" {
		d.t.Fatalf("Snapshot (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, offered); diff != "" {
		d.t.Fatalf("offered (-want +got):\n%s", diff)
	}
	var none *router.NoTargetError
	if !errors.As(err, &none) || none.RetryAfter != d.m.retryAfter() {
		d.t.Fatalf("error is %v, want RetryAfter %v", err, d.m.retryAfter())
	}
	for _, x := range d.m.members {
		if s := d.m.state(x); d.told[x.cfg.ID] != s {
			d.t.Fatalf("%q is %v, told %v", x.cfg.ID, s, d.told[x.cfg.ID])
		}
	}
	panicking, _ := d.m.panics()
	if d.panicking != panicking || d.v.Panicking() != panicking {
		d.t.Fatalf("panicking %v, told %v, want %v", d.v.Panicking(), d.panicking, panicking)
	}
	if panicking {
		d.panics++
	}
}

func TestModel(t *testing.T) {
	var requests, trips, panics int
	for seed := range uint64(120) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			ops := make([]byte, 1000)
			for i := range ops {
				ops[i] = byte(rng.Uint32())
			}
			ops[0], ops[1] = 0, 31
			d := drive(t, ops)
			requests += len(d.reqs)
			trips += d.trips
			panics += d.panics
		})
		if !ok {
			break
		}
	}
	if requests < 10_000 || trips < 100 || panics < 1000 {
		t.Errorf("the histories had %d requests, %d trips, %d steps in a panic: too few to prove anything",
			requests, trips, panics)
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{0, 31, 1, 0, 9, 7, 0, 1, 1, 0, 9, 7, 0, 1, 13, 200, 1, 0, 9, 7, 0, 0})
	f.Add([]byte{0, 3, 1, 0, 9, 0, 1, 0, 3, 1, 0, 9, 7, 1, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		drive(t, ops[:min(len(ops), 2000)])
	})
}
