package lmcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
)

func TestNewNamesWhatIsOff(t *testing.T) {
	_, err := New(Config{
		Egress: egress.Policy{AllowHosts: []string{"*.example"}},
		Targets: []Target{
			{},
			{ID: "a", Endpoint: "http://127.0.0.1:1/", Kind: "redis", Refresh: -1, Timeout: -1, Stale: -1,
				Watermark: math.NaN()},
			{ID: "b", Endpoint: "http://169.254.169.254/latest"},
			{ID: "c", Endpoint: "tcp://127.0.0.1:1", Watermark: 1.5},
			{ID: "d", Endpoint: "http://127.0.0.1:1/", Refresh: time.Minute, Stale: time.Second, Timeout: 2 * time.Second},
			{ID: "e", Endpoint: "http://127.0.0.1:1/", Header: http.Header{"a b": {"x\r\ny"}}},
			{ID: "f", Endpoint: "http://127.0.0.1:1/"},
			{ID: "f", Endpoint: "http://127.0.0.1:2/"},
			{ID: "g", Endpoint: "ftp://127.0.0.1/"},
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Egress.AllowHosts[0] is", `Targets[0].ID is ""`, "Targets[0].Endpoint: it is empty",
		`target "a": Targets[1].Kind is "redis"`, "Refresh is -1ns", "Timeout is -1ns", "Stale is -1ns", "Watermark is NaN",
		`"b": Targets[2].Endpoint: egress: http://169.254.169.254/latest is denied`, `[3].Endpoint: it is not an http`,
		"Watermark is 1.5",
		"[4].Stale is 1s; it must be at least Refresh", "Timeout is 2s; it must be at most Stale",
		`Header is "a b"`, "control character", `Targets[7].ID is "f"; it must be another one than that of Targets[6]`,
		`[8].Endpoint`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	p := mustNew(t, Config{Targets: []Target{
		{ID: "a", Endpoint: "http://127.0.0.1:1/"},
		{ID: "b", Endpoint: "http://127.0.0.1:1/", Refresh: time.Minute},
		{ID: "c", Endpoint: "http://127.0.0.1:1/", Refresh: time.Millisecond, Stale: time.Second},
		{ID: "d", Endpoint: "http://127.0.0.1:1/", Refresh: math.MaxInt64},
	}})
	var got []string
	for _, s := range p.table.Load().list {
		got = append(got, fmt.Sprint(s.Refresh, s.Timeout, s.Stale, s.Watermark))
	}
	if diff := cmp.Diff([]string{"2s 2s 10s 0.6", "1m0s 2s 5m0s 0.6", "1ms 1s 1s 0.6"}, got[:3]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSetKeepsWhatStays(t *testing.T) {
	s, other := newServer(t), newServer(t)
	p := mustNew(t, Config{})
	if got := p.Status("a"); got.State != Unknown || !math.IsNaN(p.free("a")) || len(p.Snapshot()) != 0 {
		t.Errorf("before: %+v", got)
	}
	mustSet(t, p, s.target("a"), s.target("b"), s.target("c"))
	stop := run(t, p)
	for _, id := range []string{"a", "b", "c"} {
		eventually(t, id+" is polled", func() bool { return p.says(id, 0.75) })
	}
	if err := p.Run(context.Background()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a second Run: %v", err)
	}
	stop()

	// Without Run nothing new is learned, so what is known is what was kept.
	other.says(`{"occupancy": 1}`)
	changed := s.target("b")
	changed.Header, changed.Refresh = http.Header{"X": {"y"}}, 2*tick
	moved := other.target("c")
	mustSet(t, p, s.target("a"), changed, moved, other.target("d"))
	for id, want := range map[string]float64{"a": 0.75, "b": 0.75, "c": math.NaN(), "d": math.NaN()} {
		if !p.says(id, want) {
			t.Errorf("%s: %v after Set, want %v", id, p.free(id), want)
		}
	}
	asStatus := s.target("a")
	asStatus.Kind = KindStatus
	mustSet(t, p, asStatus)
	if !p.says("a", math.NaN()) || !p.says("b", math.NaN()) || len(p.Snapshot()) != 1 {
		t.Errorf("another kind, and gone: %v", p.Snapshot())
	}

	// A wrong Set changes nothing; a right one is followed while Run runs.
	if err := p.Set([]Target{other.target("x"), {ID: "y"}}); err == nil || len(p.Snapshot()) != 1 {
		t.Errorf("a wrong Set: %v, %v", err, p.Snapshot())
	}
	run(t, p)
	mustSet(t, p, other.target("x"))
	eventually(t, "x is polled", func() bool { return p.says("x", 0) })
	mustSet(t, p)
	eventually(t, "nobody is polled", func() bool {
		n := other.polls.Load()
		time.Sleep(5 * tick)
		return other.polls.Load() == n
	})
	mustSet(t, p, other.target("x"))
	eventually(t, "x is polled again", func() bool { return p.says("x", 0) })
}

// network is an http.RoundTripper that notes when each host is asked.
type network struct {
	mu    sync.Mutex
	asked map[string][]time.Time
	do    func(host string, r *http.Request) (string, error)
}

// times returns when each host was asked.
func (n *network) times() map[string][]time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string][]time.Time{}
	for host, ts := range n.asked {
		all[host] = slices.Clone(ts)
	}
	return all
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	n.mu.Lock()
	n.asked[host] = append(n.asked[host], time.Now())
	n.mu.Unlock()
	body, err := n.do(host, r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n := &network{asked: map[string][]time.Time{}}
		n.do = func(host string, r *http.Request) (string, error) {
			if host == "hangs" || host == "stops" && time.Since(begin) > 30*time.Second {
				<-r.Context().Done()
				return "", r.Context().Err()
			}
			return `{"occupancy": 0.25}`, nil
		}
		p := mustNew(t, Config{Targets: []Target{
			{ID: "well", Endpoint: "http://well/"}, {ID: "stops", Endpoint: "http://stops/"}, {ID: "hangs",
				Endpoint: "http://hangs/"},
		}})
		p.transport = n
		stop := run(t, p)
		time.Sleep(29 * time.Second)
		if !p.says("well", 0.75) || !p.says("stops", 0.75) || !p.says("hangs", math.NaN()) {
			t.Errorf("at 29 s: %+v", p.Snapshot())
		}
		time.Sleep(6 * time.Second) // a poll of 30 s to 32.2 s, and its timeout
		st := p.Status("stops")
		if st.State != Failed || !errors.Is(st.Err, context.DeadlineExceeded) || st.Occupancy != 0.25 ||
			st.Age < 4*time.Second || st.Age > 8*time.Second {
			t.Errorf("at 35 s: %+v", st)
		}
		time.Sleep(25 * time.Second)

		// Every 2 s give or take a tenth, the first time within 0.4 s. A hang of 2 s is
		// followed by a pause of 0.2 s.
		for host, ts := range n.times() {
			if d := ts[0].Sub(begin); d > 400*time.Millisecond {
				t.Errorf("%s: first asked after %v", host, d)
			}
			distinct := map[time.Duration]bool{}
			for i := 1; i < len(ts); i++ {
				d := ts[i].Sub(ts[i-1])
				distinct[d] = true
				if most := 2200 * time.Millisecond; d < 1800*time.Millisecond || d > most {
					t.Errorf("%s: asked %v after the last time", host, d)
				}
			}
			if len(ts) < 26 || host == "well" && len(distinct) < 10 {
				t.Errorf("%s: asked %d times in a minute, %d distinct intervals", host, len(ts), len(distinct))
			}
		}

		// Nobody polls any more: what is known grows old.
		eventually(t, "a fresh answer", func() bool { return p.Status("well").Age < 10*time.Millisecond })
		stop()
		at := p.Status("well").At
		time.Sleep(time.Until(at.Add(DefaultStale - time.Millisecond)))
		if !p.says("well", 0.75) {
			t.Errorf("just before it is stale: %+v", p.Status("well"))
		}
		time.Sleep(time.Millisecond)
		if st := p.Status("well"); st.State != Stale || !st.State.Neutral() || !math.IsNaN(st.Free) ||
			!p.says("well", math.NaN()) || st.Occupancy != 0.25 || st.Age != DefaultStale {
			t.Errorf("stale: %+v", st)
		}
		if st := p.Status("stops"); st.State != Failed {
			t.Errorf("failed and old: %+v", st)
		}
	})
}

// A hundred targets of which half hang are polled as often as a single one.
func TestSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{asked: map[string][]time.Time{}}
		n.do = func(host string, r *http.Request) (string, error) {
			if strings.HasPrefix(host, "bad") {
				<-r.Context().Done()
				return "", r.Context().Err()
			}
			return `{"occupancy": 0.5}`, nil
		}
		var ps []Target
		for i := range 100 {
			host := fmt.Sprint([]string{"good", "bad"}[i%2], i)
			ps = append(ps, Target{ID: host, Endpoint: "http://" + host + "/", Timeout: 10 * time.Second})
		}
		p := mustNew(t, Config{Targets: ps})
		p.transport = n
		run(t, p)
		time.Sleep(time.Minute)
		asked := n.times()
		for i, c := range ps {
			want := 0.5
			if i%2 == 1 {
				want = math.NaN()
			}
			if k := len(asked[c.ID]); !p.says(c.ID, want) || i%2 == 0 && k < 26 || i%2 == 1 && (k < 5 || k > 8) {
				t.Errorf("%s: asked %d times, %+v", c.ID, k, p.Status(c.ID))
			}
		}
	})
}

// Whatever the order, with unknown IDs and duplicates among them.
func TestFreeInAnyOrder(t *testing.T) {
	var ps []Target
	want := map[string]float64{}
	for i := range 9 {
		ps = append(ps, Target{ID: fmt.Sprint("t", i), Endpoint: "http://127.0.0.1:1/"})
		want[ps[i].ID] = 1 - float64(i)/16
	}
	p := mustNew(t, Config{Targets: ps})
	for i, s := range p.table.Load().list {
		s.status.Store(&status{state: Available, kind: KindOccupancy, occupancy: float64(i) / 16, at: time.Now()})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		from := rng.IntN(9)
		ts := make([]router.Target, rng.IntN(12))
		for i := range ts {
			ts[i].ID = fmt.Sprint("t", from+i)
			if rng.IntN(3) == 0 {
				ts[i].ID = fmt.Sprint("t", rng.IntN(12)-1)
			}
		}
		dst := make([]float64, len(ts)+1)
		dst[len(ts)] = 42
		p.Free(ts, dst)
		for i, tg := range ts {
			w, ok := want[tg.ID]
			if ok && dst[i] != w || !ok && !math.IsNaN(dst[i]) {
				t.Fatalf("%s is %v of %v", tg.ID, dst[i], ts)
			}
		}
		if dst[len(ts)] != 42 {
			t.Fatal("wrote behind the targets")
		}
	}
}

func TestFreeDoesNotAllocate(t *testing.T) {
	p := mustNew(t, Config{Targets: []Target{{ID: "a", Endpoint: "http://127.0.0.1:1/"}}})
	ts := []router.Target{{ID: "a"}, {ID: "b"}}
	dst := make([]float64, 2)
	if n := testing.AllocsPerRun(100, func() { p.Free(ts, dst) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Readers, Set, SetEgress and Run at once.
func TestRace(t *testing.T) {
	s := newServer(t)
	p := mustNew(t, Config{Targets: []Target{s.target("a")}})
	run(t, p)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				c := s.target("a")
				c.Watermark = float64(1+(g+i)%3) / 3
				if err := p.Set([]Target{c, s.target("b")}); err != nil {
					t.Error(err)
				}
				if f := p.free("a"); f != 0.75 && !math.IsNaN(f) {
					t.Errorf("free %v", f)
				}
				_ = p.Snapshot()
				if err := p.SetEgress(egress.Policy{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "both are polled", func() bool { return p.says("a", 0.75) && p.says("b", 0.75) })
}

func BenchmarkFree(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("targets=%d", n), func(b *testing.B) {
			var ps []Target
			var ts []router.Target
			for i := range n {
				id := fmt.Sprintf("http://10.0.%d.%d:8000", i/256, i%256)
				ps = append(ps, Target{ID: id, Endpoint: id})
				ts = append(ts, router.Target{ID: id})
			}
			p, err := New(Config{Targets: ps})
			if err != nil {
				b.Fatal(err)
			}
			at := time.Now()
			for _, s := range p.table.Load().list {
				s.status.Store(&status{state: Available, kind: KindStatus, occupancy: 0.3, at: at})
			}
			dst := make([]float64, n)
			b.ReportAllocs()
			for b.Loop() {
				p.Free(ts, dst)
			}
		})
	}
}
