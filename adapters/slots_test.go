package adapters_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
)

// clock is a time that moves by hand.
type clock struct{ now time.Time }

func (c *clock) step(d time.Duration) { c.now = c.now.Add(d) }

func open(t testing.TB, c adapters.Config) (*adapters.Slots, *clock) {
	t.Helper()
	k := &clock{now: time.Unix(1e9, 0)}
	c.Now = func() time.Time { return k.now }
	s, err := adapters.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, k
}

func fleet(ids ...string) []router.Target {
	ts := make([]router.Target, len(ids))
	for i, id := range ids {
		ts[i].ID = id
	}
	return ts
}

func loaded(s *adapters.Slots, id string) []string {
	st, _ := s.State(id)
	var names []string
	for _, a := range st.Adapters {
		if a.Loaded {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names
}

// serve sends one request and ends it well.
func serve(s *adapters.Slots, k *clock, id, name string) {
	u := s.Sent(id, name, 0)
	k.step(time.Millisecond)
	u.FirstToken()
	u.End(router.Finished)
	k.step(time.Millisecond)
}

// engine is a naive LRU of adapters; those in use are not evicted.
type engine struct {
	slots int
	order []string // the latest last
	live  map[string]int
}

func (e *engine) begin(name string) bool {
	i := slices.Index(e.order, name)
	switch {
	case i >= 0:
		e.order = slices.Delete(e.order, i, i+1)
	case len(e.order) == e.slots:
		v := slices.IndexFunc(e.order, func(n string) bool { return e.live[n] == 0 })
		if v < 0 {
			return false
		}
		e.order = slices.Delete(e.order, v, v+1)
	}
	e.order = append(e.order, name)
	e.live[name]++
	return true
}

// The model of a target has what an engine with a naive LRU has, whatever is sent, fails and overlaps.
func TestFollowsAnEngine(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		slots := 1 + rng.IntN(5)
		s, k := open(t, adapters.Config{})
		s.Page("e", adapters.Page{Slots: slots})
		e := &engine{slots: slots, live: map[string]int{}}
		type request struct {
			name string
			use  *adapters.Use
		}
		var live []request
		for range 300 {
			k.step(time.Millisecond)
			name := fmt.Sprintf("a%d", rng.IntN(2*slots+1))
			switch {
			case rng.IntN(10) == 0: // refused: the engine did nothing, or does not know it
				s.Sent("e", name, 1).End(router.Failed)
				if i := slices.Index(e.order, name); i >= 0 { // it was sent, so the model takes it for used
					e.order = append(slices.Delete(e.order, i, i+1), name)
				}
			case len(live) > 0 && (rng.IntN(2) == 0 || len(live) >= slots):
				i := rng.IntN(len(live))
				e.live[live[i].name]--
				live[i].use.End([]router.Stage{router.Finished, router.Canceled, router.Failed}[rng.IntN(3)])
				live = slices.Delete(live, i, i+1)
			case e.begin(name):
				u := s.Sent("e", name, 1)
				u.FirstToken()
				u.FirstToken()
				live = append(live, request{name, u})
			}
			want := slices.Clone(e.order)
			slices.Sort(want)
			if got := loaded(s, "e"); !slices.Equal(got, want) {
				t.Fatalf("seed %d, %d slots: the model has %v, the engine %v", seed, slots, got, want)
			}
		}
	}
}

// Pages, events and the requests of others say what is loaded; that a page does not list an adapter says nothing.
func TestPages(t *testing.T) {
	s, k := open(t, adapters.Config{Slots: 2})
	s.Page("e", adapters.Page{})
	if _, ok := s.State("e"); ok {
		t.Error("a page without adapters makes a target")
	}
	s.Page("e", adapters.Page{Slots: 3, Running: []string{"a", "b"}})
	s.Page("e", adapters.Page{Slots: 3})
	if got := loaded(s, "e"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("after a page that lists nothing running: %v", got)
	}
	s.Seen("e", "c")
	s.Seen("e", "d") // evicts a, the least recently used
	if got := loaded(s, "e"); !slices.Equal(got, []string{"b", "c", "d"}) {
		t.Errorf("after events: %v", got)
	}
	k.step(time.Minute)
	s.Page("e", adapters.Page{Slots: 3, Exact: true, Loaded: []string{"d", "x"}})
	if got := loaded(s, "e"); !slices.Equal(got, []string{"d", "x"}) {
		t.Errorf("after an exact page: %v", got)
	}
	s.Unloaded("e", "x")
	if got := loaded(s, "e"); !slices.Equal(got, []string{"d"}) {
		t.Errorf("after an unload: %v", got)
	}
	s.Forget("e")
	if _, ok := s.State("e"); ok {
		t.Error("a forgotten target is known")
	}
	u := s.Sent("e", "a", 1) // a page that is a moment old does not deny what was just used
	u.FirstToken()
	u.End(router.Finished)
	s.Page("e", adapters.Page{Exact: true, Loaded: []string{"d"}})
	if got := loaded(s, "e"); !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("after an old page: %v", got)
	}
}

// More adapters in use at once than slots are supposed show that there are more slots.
func TestSlotsAreLearned(t *testing.T) {
	s, _ := open(t, adapters.Config{Slots: 1})
	for _, name := range []string{"a", "b", "c"} {
		s.Sent("e", name, 1).FirstToken()
	}
	if st, _ := s.State("e"); st.Slots != 3 || st.Reported || st.Loads != 3 || st.Loaded() != 3 {
		t.Errorf("%+v", st)
	}
}

func TestCosts(t *testing.T) {
	s, k := open(t, adapters.Config{Slots: 2, LoadTokens: 1000})
	ts := fleet("resident", "free", "full", "busy", "unknown")
	serve(s, k, "resident", "x")
	serve(s, k, "free", "a")
	for range 6 { // twice as often as x, and nowhere else
		serve(s, k, "full", "b")
		serve(s, k, "full", "c")
	}
	s.Page("busy", adapters.Page{Slots: 2})
	s.Sent("busy", "d", 1).FirstToken()
	s.Sent("busy", "e", 1).FirstToken()
	got := s.Costs("x", ts, nil)
	home := s.Homes("x", []string{"resident", "free", "full", "busy", "unknown"})
	for i := range got {
		if got[i] > 0 && !slices.Contains(home, ts[i].ID) {
			got[i] -= 20
		}
	}
	if got[0] != 0 || got[1] != 1000 || got[3] != 4000 || got[4] != 1000 {
		t.Errorf("costs %v", got)
	}
	if got[2] < 2400 || got[2] > 2520 { // b has about 6 times the requests of x: 1 + 2 (6/7)^2
		t.Errorf("full: %v", got[2])
	}
	if got := s.Costs("", ts, []float64{7}); !slices.Equal(got, []float64{7, 0, 0, 0, 0, 0}) {
		t.Errorf("without an adapter: %v", got)
	}
	s.Sent("free", "x", 1) // a load under way is joined
	if got := s.Costs("x", ts, nil)[1]; got != 0 {
		t.Errorf("being loaded: %v", got)
	}
}

// The order of the targets changes nothing, and targets that are not Ready are no homes.
func TestHomes(t *testing.T) {
	s, k := open(t, adapters.Config{})
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for i := range 400 { // 3 of 4 requests are for hot
		name := "hot"
		if i%4 == 0 {
			name = fmt.Sprintf("cold%d", i%16)
		}
		serve(s, k, "z", name)
	}
	if n := len(s.Homes("hot", ids)); n != 8 {
		t.Errorf("%d homes of an adapter with 3/4 of the requests", n)
	}
	if n := len(s.Homes("cold0", ids)); n != 1 {
		t.Errorf("%d homes of an adapter with 1/16 of the requests", n)
	}
	ts := fleet(ids...)
	for n := range 50 {
		name := fmt.Sprintf("new%d", n)
		want := s.Homes(name, ids)
		costs := s.Costs(name, ts, nil)
		at := slices.Index(costs, slices.Min(costs))
		if len(want) != 1 || ts[at].ID != want[0] {
			t.Fatalf("%s: home %v, least cost at %s of %v", name, want, ts[at].ID, costs)
		}
		turned := slices.Clone(ts)
		slices.Reverse(turned)
		back := s.Costs(name, turned, nil)
		slices.Reverse(back)
		if !slices.Equal(costs, back) {
			t.Fatalf("%s: the order decides: %v, %v", name, costs, back)
		}
		down := slices.Clone(ts)
		down[at].State = router.Cooling
		costs = s.Costs(name, down, nil)
		costs[at] = math.Inf(1)
		other := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == want[0] })
		if to := down[slices.Index(costs, slices.Min(costs))].ID; to != s.Homes(name, other)[0] {
			t.Fatalf("%s: with its home away it goes to %s", name, to)
		}
	}
}

// A load costs what first uses take longer, in tokens, whatever the noise of single requests.
func TestLoadsAreTimed(t *testing.T) {
	s, k := open(t, adapters.Config{LoadTokens: 1})
	rng := rand.New(rand.NewPCG(3, 4))
	request := func(name string, load time.Duration) {
		work := float64(200 + rng.IntN(4000))
		u := s.Sent("e", name, work)
		d := time.Duration(work*float64(100*time.Microsecond)*(0.8+0.4*rng.Float64())) + load
		if rng.IntN(8) == 0 {
			d += 3 * time.Second // it waited for something else
		}
		k.step(d)
		u.FirstToken()
		u.End(router.Finished)
	}
	for i := range 60 {
		name := fmt.Sprintf("a%d", i)
		request(name, 500*time.Millisecond)
		for range 4 {
			request(name, 0)
		}
	}
	st := s.Stats()
	if want := 5000.0; !st.Measured || math.Abs(st.LoadTokens-want) > 0.2*want {
		t.Errorf("a load of 5,000 tokens is measured as %+v", st)
	}
}

// Names and IDs come from outside: neither their number nor their length grows the model.
func TestBounds(t *testing.T) {
	s, _ := open(t, adapters.Config{Slots: 4, MaxNames: 100})
	long := strings.Repeat("x", adapters.MaxName+1)
	if u := s.Sent("e", long, 1); u != nil {
		t.Error("a name that is too long is followed")
	}
	var names []string
	for i := range 5000 {
		name := fmt.Sprintf("n%d", i)
		names = append(names, name)
		u := s.Sent(fmt.Sprintf("t%d", i%8), name, 1)
		u.End(router.Failed) // it does not exist
		s.Sent("e", name, 1) // never ends
		s.Seen("seen", name)
	}
	names = append(names, long)
	s.Page("page", adapters.Page{Slots: 1 << 30, Running: names})
	s.Page("exact", adapters.Page{Exact: true, Loaded: names})
	for i := range 10000 {
		s.Seen(fmt.Sprintf("many%d", i), "a")
	}
	st := s.Stats()
	if st.Targets > 4096+1 {
		t.Errorf("%d targets", st.Targets)
	}
	for _, id := range []string{"e", "page", "exact", "seen"} {
		if x, ok := s.State(id); ok && (len(x.Adapters) > adapters.MaxSlots+64 || x.Slots > adapters.MaxSlots) {
			t.Errorf("%s: %d adapters in %d slots", id, len(x.Adapters), x.Slots)
		}
	}
	if st.Adapters > 100+2*adapters.MaxSlots+2*64 {
		t.Errorf("%d names", st.Adapters)
	}
}

// An attacker's adapters, which no engine has, evict nothing.
func TestUnknownAdaptersEvictNothing(t *testing.T) {
	s, k := open(t, adapters.Config{Slots: 2})
	serve(s, k, "e", "a")
	serve(s, k, "e", "b")
	for i := range 100 {
		s.Sent("e", fmt.Sprintf("none%d", i), 1).End(router.Failed)
	}
	if got := loaded(s, "e"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	if d := s.Stats(); d.Adapters != 102 {
		t.Errorf("%+v", d)
	}
}

func TestStorm(t *testing.T) {
	s, err := adapters.New(adapters.Config{Slots: 2, MaxNames: 10})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 9))
			ts := fleet("a", "b", "c")
			var cs []float64
			for range 2000 {
				id, name := ts[rng.IntN(3)].ID, fmt.Sprintf("n%d", rng.IntN(20))
				cs = s.Costs(name, ts, cs[:0])
				u := s.Sent(id, name, 10)
				switch rng.IntN(6) {
				case 0:
					s.Forget(id)
				case 1:
					s.Page(id, adapters.Page{Slots: 1 + rng.IntN(3), Running: []string{name}})
				case 2:
					s.Page(id, adapters.Page{Exact: true, Loaded: []string{name}})
				case 3:
					s.Unloaded(id, name)
				}
				u.FirstToken()
				u.End([]router.Stage{router.Finished, router.Failed, router.Canceled}[rng.IntN(3)])
				s.State(id)
			}
		})
	}
	wg.Wait()
	for _, id := range []string{"a", "b", "c"} {
		st, _ := s.State(id)
		for _, a := range st.Adapters {
			if a.InFlight != 0 || !a.Loaded {
				t.Errorf("%s: %+v with nothing in flight", id, a)
			}
		}
	}
}

func TestNil(t *testing.T) {
	var s *adapters.Slots
	s.Page("e", adapters.Page{Slots: 1})
	s.Seen("e", "a")
	s.Unloaded("e", "a")
	s.Forget("e")
	u := s.Sent("e", "a", 1)
	u.FirstToken()
	u.End(router.Finished)
	if _, ok := s.State("e"); ok || s.Stats() != (adapters.Stats{}) {
		t.Error("a nil Slots knows something")
	}
	if got := s.Costs("a", fleet("e"), nil); !slices.Equal(got, []float64{0}) {
		t.Errorf("%v", got)
	}
}

func TestConfigErrors(t *testing.T) {
	_, err := adapters.New(adapters.Config{Slots: 1025, LoadTokens: math.Inf(1), MaxNames: -1})
	var fields []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var c *router.ConfigError
		if errors.As(e, &c) {
			fields = append(fields, c.Field)
		}
	}
	if d := cmp.Diff([]string{"Slots", "LoadTokens", "MaxNames"}, fields); d != "" {
		t.Error(d)
	}
}

func BenchmarkCosts(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, k := open(b, adapters.Config{})
			var ids []string
			for i := range n {
				ids = append(ids, fmt.Sprintf("target-%d", i))
				for j := range 4 {
					serve(s, k, ids[i], fmt.Sprintf("adapter-%d", (i*4+j)%64))
				}
			}
			ts := fleet(ids...)
			var cs []float64
			b.ReportAllocs()
			for b.Loop() {
				cs = s.Costs("adapter-7", ts, cs[:0])
			}
		})
	}
}
