package loadview

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
)

func ids(v *View) (all []string) {
	for _, s := range v.Snapshot() {
		all = append(all, s.Target.ID)
	}
	return all
}

func members(all ...string) []Member {
	ms := make([]Member, len(all))
	for i, id := range all {
		ms[i].ID = id
	}
	return ms
}

// Requests that are chosen at once through several Views see each other.
func TestThousandAtOnceThroughSeveralViews(t *testing.T) {
	v := newView(t, Config{}, 8)
	views := []*View{v}
	for range 3 {
		other := v.Share()
		set(t, other, members(ids(v)...)...)
		views = append(views, other)
	}
	flights := make([]router.Flight, 1000)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range flights {
		wg.Go(func() {
			<-start
			_, f, err := views[i%len(views)].Choose(t.Context(), leastLoaded)
			if err != nil {
				t.Error(err)
			}
			flights[i] = f
		})
	}
	close(start)
	wg.Wait()
	for _, view := range views {
		for _, s := range view.Snapshot() {
			if s.Target.Load.InFlight != 125 {
				t.Errorf("%s has %d in flight", s.Target.ID, s.Target.Load.InFlight)
			}
		}
	}
	for _, f := range flights {
		f.Done(router.Outcome{Stage: router.Finished})
	}
	for _, view := range views {
		for _, s := range view.Snapshot() {
			if l := s.Target.Load; l != (router.Load{Known: true}) {
				t.Errorf("%s ends with %+v", s.Target.ID, l)
			}
		}
	}
}

// A choice must be among the members of its own View.
func TestShareOffersOwnMembersOnly(t *testing.T) {
	a := newView(t, Config{}, 0)
	b := a.Share()
	set(t, a, members("x")...)
	set(t, b, members("y")...)
	_, _, err := a.Choose(t.Context(), func(ts []router.Target) (router.Decision, error) {
		if len(ts) != 1 || ts[0].ID != "x" {
			t.Errorf("offered %v", ts)
		}
		return router.Decision{Target: router.Target{ID: "y"}}, nil
	})
	if err == nil {
		t.Error("the member of another View was chosen")
	}
	if _, ok := a.Engine("y"); ok {
		t.Error("the engine of another View's member is known")
	}
}

// A reload makes new Views, fills them and empties the old ones.
func TestShareAcrossReload(t *testing.T) {
	var log []string
	v := newView(t, Config{CoolAfter: 1, Trace: Trace{
		Joined: func(m Member) { log = append(log, "joined "+m.ID) },
		Left:   func(id string, n int) { log = append(log, fmt.Sprint("left ", id, " with ", n)) },
		Forget: func(id string) { log = append(log, "forget "+id) },
	}}, 0)
	set(t, v, members("a", "b", "c")...)
	fa, fb := send(t, v, "a"), send(t, v, "b")
	send(t, v, "c").Done(router.Outcome{Stage: router.Failed})
	next := v.Share()
	set(t, next, members("c", "a")...)
	set(t, v)
	want := []string{"joined a", "joined b", "joined c", "left b with 1", "forget b"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if s := status(t, next, "a"); s.Target.Load.InFlight != 1 {
		t.Errorf("the counter was lost: %+v", s)
	}
	if s := status(t, next, "c"); s.Target.State != router.Cooling {
		t.Errorf("the health was lost: %+v", s)
	}
	fa.Done(router.Outcome{})
	fb.Done(router.Outcome{})
	if s := status(t, next, "a"); s.Target.Load.InFlight != 0 {
		t.Errorf("the request does not settle: %+v", s)
	}
}

func TestPutAndRemove(t *testing.T) {
	v := newView(t, Config{}, 3)
	f := send(t, v, "vllm-1")
	if err := v.SetDraining("vllm-1", true); err != nil {
		t.Fatal(err)
	}
	if err := v.Put(Member{ID: "vllm-1", Weight: 2, Ref: "new"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"vllm-0", "vllm-1", "vllm-2"}, ids(v)); diff != "" {
		t.Error(diff)
	}
	if s := status(t, v, "vllm-1").Target; s.Load.InFlight != 1 || s.Weight != 2 || s.Ref != "new" ||
		s.State != router.Draining {
		t.Errorf("%+v", s)
	}
	if err := v.Put(Member{ID: "more"}); err != nil {
		t.Fatal(err)
	}
	if !v.Remove("vllm-0") || v.Remove("vllm-0") || v.Remove("nobody") {
		t.Error("Remove is wrong about who was there")
	}
	if diff := cmp.Diff([]string{"vllm-1", "vllm-2", "more"}, ids(v)); diff != "" {
		t.Error(diff)
	}
	f.Done(router.Outcome{})
	if s := status(t, v, "vllm-1").Target; s.Load.InFlight != 0 {
		t.Errorf("%+v", s)
	}
	if err := v.Put(Member{}); err == nil {
		t.Error("a member without an ID was put")
	}
}

// TestShareModel holds random changes of several Views, and requests through
// them, to a model that keeps nothing but lists.
func TestShareModel(t *testing.T) {
	for seed := range uint64(200) {
		shareModel(t, rand.New(rand.NewPCG(seed, 1)))
	}
}

func shareModel(t *testing.T, r *rand.Rand) {
	type request struct {
		id     string
		life   int // which life of the member's
		flight router.Flight
	}
	inPool, life := map[string]bool{}, map[string]int{}
	v := newView(t, Config{Trace: Trace{
		Joined: func(m Member) {
			if inPool[m.ID] {
				t.Fatalf("%s joined twice", m.ID)
			}
			inPool[m.ID] = true
		},
		Left: func(id string, _ int) {
			if !inPool[id] {
				t.Fatalf("%s left twice", id)
			}
			delete(inPool, id)
			life[id]++
		},
	}}, 0)
	views := []*View{v, v.Share(), v.Share()}
	want := make([][]router.Target, len(views))
	var live []request
	check := func() {
		union := map[string]bool{}
		for i, view := range views {
			got := view.Snapshot()
			if len(got) != len(want[i]) {
				t.Fatalf("View %d has %v", i, ids(view))
			}
			for k, w := range want[i] {
				union[w.ID] = true
				n := 0
				for _, q := range live {
					if q.id == w.ID && q.life == life[w.ID] {
						n++
					}
				}
				g := got[k].Target
				if g.ID != w.ID || g.Weight != w.Weight || g.Load.InFlight != n {
					t.Fatalf("View %d has %+v, want %+v with %d", i, g, w, n)
				}
			}
		}
		if !maps.Equal(union, inPool) {
			t.Fatalf("the pool has %v, the Views %v", inPool, union)
		}
	}
	for range 60 {
		i := r.IntN(len(views))
		view, id := views[i], string(rune('a'+r.IntN(6)))
		weight := float64(1 + r.IntN(3))
		at := slices.IndexFunc(want[i], func(w router.Target) bool { return w.ID == id })
		switch r.IntN(6) {
		case 0:
			var ms []Member
			want[i] = nil
			for _, k := range r.Perm(6)[:r.IntN(7)] {
				ms = append(ms, Member{ID: string(rune('a' + k)), Weight: weight})
				want[i] = append(want[i], router.Target{ID: ms[len(ms)-1].ID, Weight: weight})
			}
			set(t, view, ms...)
		case 1:
			if err := view.Put(Member{ID: id, Weight: weight}); err != nil {
				t.Fatal(err)
			}
			if w := (router.Target{ID: id, Weight: weight}); at >= 0 {
				want[i][at] = w
			} else {
				want[i] = append(want[i], w)
			}
		case 2:
			if view.Remove(id) != (at >= 0) {
				t.Fatalf("Remove of %s from View %d", id, i)
			}
			if at >= 0 {
				want[i] = slices.Delete(want[i], at, at+1)
			}
		case 3, 4:
			if at >= 0 {
				live = append(live, request{id, life[id], send(t, view, id)})
			}
		case 5:
			if len(live) > 0 {
				k := r.IntN(len(live))
				live[k].flight.Done(router.Outcome{Stage: router.Finished})
				live = slices.Delete(live, k, k+1)
			}
		}
		check()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{CoolAfter: 1, Jitter: -1}, 2)
		other := v.Share()
		for name, c := range map[string]struct {
			do   func()
			want bool
		}{
			"a member joins":           {func() { _ = v.Put(Member{ID: "new"}) }, true},
			"through another View":     {func() { _ = other.Put(Member{ID: "vllm-0"}) }, true},
			"a member leaves":          {func() { v.Remove("vllm-1") }, false},
			"it drains":                {func() { _ = v.SetDraining("vllm-0", true) }, false},
			"it drains no more":        {func() { _ = v.SetDraining("vllm-0", false) }, true},
			"nothing is new":           {func() { _ = v.SetDraining("vllm-0", false) }, false},
			"a request comes and goes": {func() { send(t, v, "vllm-0").Done(router.Outcome{}) }, false},
		} {
			set(t, v, members("vllm-0", "vllm-1")...)
			set(t, other)
			if name == "it drains no more" {
				_ = v.SetDraining("vllm-0", true)
			}
			changed := v.Changed()
			if other.Changed() != changed {
				t.Errorf("%s: the Views have a channel each", name)
			}
			if closed(changed) {
				t.Errorf("%s: closed before", name)
			}
			c.do()
			if closed(changed) != c.want {
				t.Errorf("%s: closed is %v", name, closed(changed))
			}
			_ = v.SetDraining("vllm-0", false)
		}

		// A cool-down that is over is seen when the View is next used.
		set(t, v, members("a")...)
		send(t, v, "a").Done(router.Outcome{Stage: router.Failed})
		changed := v.Changed()
		synctest.Wait()
		if closed(changed) {
			t.Error("closed while it cools")
		}
		time.Sleep(DefaultCoolBase)
		send(t, v, "a").Done(router.Outcome{})
		if !closed(changed) {
			t.Error("not closed after the cool-down")
		}
		// A success cuts it short.
		early := send(t, v, "a")
		send(t, v, "a").Done(router.Outcome{Stage: router.Failed})
		late := send(t, v, "a")
		changed = v.Changed()
		early.Done(router.Outcome{Stage: router.Finished, Status: 200})
		if closed(changed) {
			t.Error("a success of before the failure closed it")
		}
		late.Done(router.Outcome{Stage: router.Finished, Status: 200})
		if !closed(changed) {
			t.Error("not closed after the success")
		}
	})
}

func TestOnForget(t *testing.T) {
	v := newView(t, Config{}, 3)
	var got []string
	note := func(who string) func(string) { return func(id string) { got = append(got, who+" "+id) } }
	stopA := v.OnForget(note("a"))
	var stopB func()
	stopB = v.Share().OnForget(func(id string) {
		note("b")(id)
		stopB() // from within
	})
	v.Remove("vllm-0")
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a vllm-0", "b vllm-0"}, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	v.Forget("vllm-1")
	stopA()
	stopA()
	set(t, v)
	if diff := cmp.Diff([]string{"a vllm-1"}, got); diff != "" {
		t.Error(diff)
	}
	if n := len(v.pool.forget.all); n != 0 {
		t.Errorf("%d functions are left", n)
	}
}

// Routers that a reload dropped must not be kept by the fleet.
func TestOnForgetIsBounded(t *testing.T) {
	v := newView(t, Config{}, 1)
	for range 1000 {
		v.OnForget(func(string) {})()
	}
	if n := len(v.pool.forget.all); n != 0 {
		t.Errorf("%d functions are left", n)
	}
}
