package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
)

type key struct{}

// as returns a context for a request of the class.
func as(c Class) context.Context { return context.WithValue(context.Background(), key{}, c) }

func classOf(ctx context.Context, _ router.Prompt) Class {
	c, _ := ctx.Value(key{}).(Class)
	return c
}

func newQueue(t testing.TB, cfg Config) *Queue {
	t.Helper()
	if cfg.Class == nil {
		cfg.Class = classOf
	}
	q, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// fleet returns a Router with the queue over n members, and their View.
func fleet(t testing.TB, q *Queue, n int, o router.Options) (*router.Router, *loadview.View) {
	t.Helper()
	v, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ms := make([]loadview.Member, n)
	for i := range ms {
		ms[i].ID = fmt.Sprint("t", i)
	}
	if err := v.Set(ms); err != nil {
		t.Fatal(err)
	}
	s, err := leastload.New(leastload.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if q != nil {
		o.Queue = q
	}
	return router.New(s, v, o), v
}

func prompt(tokens int) router.Prompt { return router.Prompt{Text: strings.Repeat("abcd", tokens)} }

// Requests beyond the places wait and go by arrival; none is ever more in flight than
// there are places.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 2})
		r, v := fleet(t, q, 2, router.Options{})
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				l, err := r.Route(context.Background(), prompt(10))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				for _, m := range v.Snapshot() {
					if m.Target.Load.InFlight > 2 {
						t.Errorf("%d in flight", m.Target.Load.InFlight)
					}
				}
				time.Sleep(time.Second)
				l.Done(router.Outcome{})
			})
			synctest.Wait()
		}
		start := time.Now()
		if n := q.Stats(); n.Waiting != 36 || n.Bytes != 36*40 || n.Models != 1 {
			t.Errorf("%+v", n)
		}
		wg.Wait()
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("40 requests of a second on 4 places took %v", took)
		}
		for i, x := range order { // four at a time
			if x/4 != i/4 {
				t.Errorf("order %v", order)
				break
			}
		}
		synctest.Wait()
		if n := q.Stats(); n.Waiting != 0 || n.Bytes != 0 || n.Models != 0 || n.Left[Served] != 36 {
			t.Errorf("%+v", n)
		}
	})
}

// A first token is enough to free a place where the bound is on prefill.
func TestFirstTokenFrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Prefill: 100})
		r, _ := fleet(t, q, 1, router.Options{})
		a, err := r.Route(context.Background(), prompt(100))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan *router.Lease)
		go func() {
			l, err := r.Route(context.Background(), prompt(100))
			if err != nil {
				t.Error(err)
			}
			done <- l
		}()
		synctest.Wait()
		if q.Stats().Waiting != 1 {
			t.Fatal("it does not wait")
		}
		a.FirstToken()
		start := time.Now()
		l := <-done
		if time.Since(start) != 0 {
			t.Errorf("the first token was noticed after %v", time.Since(start))
		}
		l.Done(router.Outcome{})
		a.Done(router.Outcome{})
	})
}

// contend has n requests of each class wait for one place, has them served one after
// the other, and returns the classes in the order in which they were served.
func contend(t *testing.T, cfg Config, n int, tokens func(Class, int) int, classes ...Class) []Class {
	t.Helper()
	cfg.Requests = 1
	q := newQueue(t, cfg)
	r, _ := fleet(t, q, 1, router.Options{})
	first, err := r.Route(context.Background(), prompt(1))
	if err != nil {
		t.Fatal(err)
	}
	var order []Class
	var wg sync.WaitGroup
	for i := range n {
		for _, c := range classes {
			wg.Go(func() {
				l, err := r.Route(as(c), prompt(tokens(c, i)))
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, c) // one at a time
				time.Sleep(10 * time.Millisecond)
				l.Done(router.Outcome{})
			})
		}
	}
	synctest.Wait()
	first.Done(router.Outcome{})
	wg.Wait()
	return order
}

// Tenants share by tokens: at each moment at which both still wait, what one of them
// was given is at most a quantum and two requests ahead of the other's, by weight. This
// is the bound of deficit round robin (Shreedhar and Varghese 1995, theorem 2).
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			classes := []Class{{Tenant: "a", Weight: 1}, {Tenant: "b", Weight: 1}, {Tenant: "c", Weight: 3}}
			size := map[string]int{"a": 1 + r.IntN(2000), "b": 1 + r.IntN(2000), "c": 1 + r.IntN(2000)}
			price := func(tenant string) int { return max(size[tenant], minPrice) }
			quantum, n, largest := 500+r.IntN(1000), 60, max(price("a"), price("b"), price("c"))
			order := contend(t, Config{Quantum: quantum}, n, func(c Class, _ int) int { return size[c.Tenant] }, classes...)
			given, served := map[string]float64{}, map[string]int{}
			for _, c := range order {
				given[c.Tenant] += float64(price(c.Tenant)) / c.Weight
				if served[c.Tenant]++; served[c.Tenant] == n {
					break // now it has nothing that waits
				}
				for _, x := range classes {
					for _, y := range classes {
						if ahead := given[x.Tenant] - given[y.Tenant]; ahead > float64(quantum+2*largest) {
							t.Fatalf("%s is %v ahead of %s; quantum %d, sizes %v", x.Tenant, ahead, y.Tenant, quantum, size)
						}
					}
				}
			}
		}
	})
}

// Prompts that cost next to nothing do not let a tenant keep its turn: a quantum pays for
// 32 requests at most.
func TestShortPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := func(Class, int) int { return 0 }
		order := contend(t, Config{}, 100, none, Class{Tenant: "a"}, Class{Tenant: "b"})
		row := 0
		for i, c := range order[:150] { // later one may be alone
			if row++; i > 0 && c != order[i-1] {
				row = 1
			}
			if row > DefaultQuantum/minPrice+1 {
				t.Fatalf("%d of %s in a row", row, c.Tenant)
			}
		}
	})
}

// A tenant that has one request at a time in the queue owes what it was given.
func TestDebtsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1, Quantum: 300})
		r, _ := fleet(t, q, 1, router.Options{})
		var given [2]int
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		client := func(who, tokens int) {
			for ctx.Err() == nil {
				l, err := r.Route(as(Class{Tenant: fmt.Sprint(who)}), prompt(tokens))
				if err != nil {
					t.Error(err)
					return
				}
				given[who] += tokens
				time.Sleep(10 * time.Millisecond)
				l.Done(router.Outcome{})
			}
		}
		wg.Go(func() { client(0, 3000) })
		for range 5 {
			wg.Go(func() { client(1, 300) })
		}
		wg.Wait()
		if f := float64(given[0]) / float64(given[1]); f < 0.9 || f > 1.1 {
			t.Errorf("%v tokens, %v times as many", given, f)
		}
	})
}

// Priorities are strict, but for one of two places once somebody waited for Aging.
func TestPriorities(t *testing.T) {
	high, low := Class{Tenant: "h", Priority: 1}, Class{Tenant: "l"}
	one := func(Class, int) int { return 1 }
	synctest.Test(t, func(t *testing.T) {
		order := contend(t, Config{Aging: -1}, 50, one, low, high)
		if i := slices.Index(order, low); i != 50 {
			t.Errorf("the first of low priority was number %d", i)
		}
		order = contend(t, Config{Aging: 200 * time.Millisecond}, 50, one, low, high)
		i := slices.Index(order, low)
		if i < 19 || i > 22 { // 10 ms each
			t.Fatalf("with aging the first of low priority was number %d", i)
		}
		for ; i+1 < 60; i++ {
			if order[i] == order[i+1] {
				t.Errorf("%v after %d are not by turns", order[i:], i)
				break
			}
		}
	})
}

// A request that lost its client, or has no time left, leaves nothing behind.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []string
		q := newQueue(t, Config{Requests: 1, MaxWait: 5 * time.Second,
			Trace: Trace{Left: func(_ context.Context, _ router.Prompt, _ Class, waited time.Duration, cause string) {
				left = append(left, fmt.Sprint(cause, " ", waited))
			}}})
		r, v := fleet(t, q, 1, router.Options{})
		l, err := r.Route(context.Background(), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if _, err := r.Route(ctx, prompt(1)); err != gone {
			t.Errorf("canceled: %v", err)
		}
		_, err = r.Route(context.Background(), prompt(1))
		var none *router.NoTargetError
		if !errors.As(err, &none) || none.Shed != TooLong || none.Waited != 5*time.Second || none.Full != 1 ||
			none.RetryAfter != 5*time.Second || none.Status() != 429 {
			t.Errorf("time is up: %v, %+v", err, none)
		}
		if want := []string{"canceled 1s", "too_long 5s"}; !slices.Equal(left, want) {
			t.Errorf("%v, want %v", left, want)
		}
		if n := v.Snapshot()[0].Target.Load.InFlight; n != 1 {
			t.Errorf("%d in flight", n)
		}
		l.Done(router.Outcome{})
		if l, err = r.Route(context.Background(), prompt(1)); err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{})
	})
}

// A full queue sheds the newest request of who has most, of the lowest priority, and
// says honestly when to come again: who does so is served soon.
func TestShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1, MaxWaiting: 4})
		r, _ := fleet(t, q, 1, router.Options{})
		var mu sync.Mutex
		shed := map[string]int{}
		var after time.Duration
		var wg sync.WaitGroup
		ask := func(c Class) {
			wg.Go(func() {
				l, err := r.Route(as(c), prompt(1))
				var none *router.NoTargetError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.As(err, &none):
					shed[c.Tenant+"/"+none.Shed]++
					after = none.RetryAfter
				case err != nil:
					t.Error(err)
				default:
					time.AfterFunc(time.Second, func() { l.Done(router.Outcome{}) })
				}
			})
			synctest.Wait()
		}
		ask(Class{}) // has the place
		for range 4 {
			ask(Class{Tenant: "much"})
		}
		ask(Class{Tenant: "much"}) // itself
		ask(Class{Tenant: "little"})
		ask(Class{Tenant: "high", Priority: 2}) // of much again
		ask(Class{Tenant: "low", Priority: -1}) // itself
		if want := map[string]int{"much/too_many": 3, "low/too_many": 1}; fmt.Sprint(shed) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", shed, want)
		}
		time.Sleep(2500 * time.Millisecond) // two were served; two wait, and one is in flight
		for range 3 {
			ask(Class{Tenant: "low", Priority: -1})
		}
		if after < 2*time.Second || after > 7*time.Second {
			t.Errorf("Retry-After %v while 4 wait and one is served a second", after)
		}
		time.Sleep(after)
		begun := time.Now()
		ask(Class{Tenant: "again", Priority: -1})
		wg.Wait()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("who came again waited for another %v", took)
		}
		time.Sleep(2 * time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // bytes
		q := newQueue(t, Config{Requests: 1, MaxBytes: 1000})
		r, _ := fleet(t, q, 1, router.Options{})
		l, err := r.Route(context.Background(), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Route(context.Background(), prompt(251))
		var none *router.NoTargetError
		if !errors.As(err, &none) || none.Shed != TooLarge || q.Stats().Bytes != 0 {
			t.Errorf("%v, %+v", err, q.Stats())
		}
		l.Done(router.Outcome{})
	})
}

// The request with the longest prefix at the free target goes first, until the oldest
// has waited for CachedFirst.
func TestCachedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1, CachedFirst: time.Second})
		_, v := fleet(t, q, 1, router.Options{})
		s, err := leastwork.New(leastwork.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := router.New(s, v, router.Options{Queue: q})
		warm := prompt(2000)
		l, err := r.Route(context.Background(), warm)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		var wg sync.WaitGroup
		ask := func(name string, p router.Prompt) {
			wg.Go(func() {
				l, err := r.Route(context.Background(), p)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				time.Sleep(600 * time.Millisecond)
				l.Done(router.Outcome{})
			})
			synctest.Wait()
		}
		ask("cold", router.Prompt{Text: strings.Repeat("wxyz", 2000)})
		ask("warm 1", warm)
		ask("warm 2", warm)
		ask("warm 3", warm)
		l.Done(router.Outcome{})
		wg.Wait()
		if want := []string{"warm 1", "warm 2", "cold", "warm 3"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
	})
}

// Requests that may go to other targets than the first ones are not held up by them,
// and models do not wait for each other.
func TestNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1})
		r, _ := fleet(t, q, 2, router.Options{})
		only := func(id string) *router.Router { return r.Among(func(t router.Target) bool { return t.ID == id }) }
		a, err := only("t0").Route(context.Background(), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan *router.Lease)
		go func() {
			l, err := only("t0").Route(context.Background(), prompt(1))
			if err != nil {
				t.Error(err)
			}
			waiting <- l
		}()
		synctest.Wait()
		start := time.Now()
		b, err := only("t1").Route(context.Background(), prompt(1))
		if err != nil || time.Since(start) != 0 {
			t.Fatal(err, time.Since(start))
		}
		b.Done(router.Outcome{})
		b, err = r.Route(context.Background(), router.Prompt{Model: "other"})
		if err != nil || time.Since(start) != 0 {
			t.Fatal(err, time.Since(start))
		}
		b.Done(router.Outcome{})
		a.Done(router.Outcome{})
		(<-waiting).Done(router.Outcome{})
	})
}

// Nobody waits if there is nothing to wait for.
func TestNothingToWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1})
		r, v := fleet(t, q, 1, router.Options{FailOpen: true})
		if err := v.SetUnhealthy("t0", true); err != nil {
			t.Fatal(err)
		}
		l, err := r.Route(context.Background(), prompt(1)) // fails open
		if err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{})
		start := time.Now()
		r, _ = fleet(t, q, 0, router.Options{})
		if _, err := r.Route(context.Background(), prompt(1)); !errors.Is(err, router.ErrNoTarget) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A panic of a strategy is its request's own.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Config{Requests: 1})
		_, v := fleet(t, q, 1, router.Options{})
		s, err := leastload.New(leastload.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var bad atomic.Bool
		r := router.New(&panics{s, &bad}, v, router.Options{Queue: q})
		l, err := r.Route(context.Background(), prompt(1))
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan any)
		go func() {
			defer func() { got <- recover() }()
			_, _ = r.Route(context.Background(), router.Prompt{Text: "bad"})
		}()
		synctest.Wait()
		next := make(chan error)
		go func() {
			l, err := r.Route(context.Background(), prompt(1))
			l.Done(router.Outcome{})
			next <- err
		}()
		synctest.Wait()
		bad.Store(true)
		l.Done(router.Outcome{})
		if p := <-got; p != "bad" {
			t.Errorf("recovered %v", p)
		}
		if err := <-next; err != nil {
			t.Error(err)
		}
	})
}

type panics struct {
	router.Strategy
	bad *atomic.Bool
}

func (p *panics) Pick(ctx context.Context, q router.Prompt, ts []router.Target) (router.Decision, error) {
	if q.Text == "bad" && p.bad.Load() {
		panic("bad")
	}
	return p.Strategy.Pick(ctx, q, ts)
}

// No wake-up is lost, and nothing leaks, if many come, wait, go and fail at once.
func TestStorm(t *testing.T) {
	q := newQueue(t, Config{Requests: 2, MaxWaiting: 64, Quantum: 10, CachedFirst: time.Millisecond,
		Aging: time.Millisecond})
	r, v := fleet(t, q, 3, router.Options{Backoff: -1})
	var served, shed, gone atomic.Int64
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 60 {
				ctx, cancel := context.WithCancel(as(Class{Tenant: fmt.Sprint(rnd.IntN(5)), Priority: rnd.IntN(3)}))
				if rnd.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(1000))*time.Microsecond, cancel)
				}
				p := prompt(1 + rnd.IntN(20))
				p.Model = []string{"", "other"}[rnd.IntN(2)]
				err := r.Do(ctx, p, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
					if rnd.IntN(2) == 0 {
						l.FirstToken()
					}
					return router.Outcome{Status: []int{200, 200, 200, 500}[rnd.IntN(4)]}, nil
				})
				switch {
				case ctx.Err() != nil:
					gone.Add(1)
				case errors.Is(err, router.ErrNoTarget):
					shed.Add(1)
				default:
					served.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if s := q.Stats(); s.Waiting != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	for _, m := range v.Snapshot() {
		if m.Target.Load.InFlight != 0 || m.Target.Load.Prefill != 0 {
			t.Errorf("%+v", m)
		}
	}
	if served.Load() == 0 {
		t.Errorf("%d served, %d shed, %d gone", served.Load(), shed.Load(), gone.Load())
	}
}

func TestConfig(t *testing.T) {
	bad := Config{Requests: -1, Prefill: -1, MaxWaiting: -1, MaxBytes: -1, MaxWait: -1, Quantum: -1, CachedPrice: 2,
		CachedFirst: -1, Lookahead: -1}
	_, err := New(bad)
	for _, f := range []string{"Requests", "Prefill", "MaxWaiting", "MaxBytes", "MaxWait", "Quantum", "CachedPrice",
		"CachedFirst", "Lookahead"} {
		if err == nil || !strings.Contains(err.Error(), "admission: "+f+" ") {
			t.Errorf("%s is not in %v", f, err)
		}
	}
	var field *router.ConfigError
	if !errors.As(err, &field) {
		t.Error(err)
	}
}

// BenchmarkUnsaturated is the price of a Queue while every target has a place: compare
// queue with none.
func BenchmarkUnsaturated(b *testing.B) {
	for _, n := range []int{8, 64} {
		for _, with := range []string{"none", "queue"} {
			b.Run(fmt.Sprint(n, "/", with), func(b *testing.B) {
				var q *Queue
				if with == "queue" {
					q = newQueue(b, Config{Requests: 100, Prefill: 1 << 20})
				}
				r, _ := fleet(b, q, n, router.Options{})
				ctx, p := context.Background(), prompt(100)
				b.ReportAllocs()
				for b.Loop() {
					l, err := r.Route(ctx, p)
					if err != nil {
						b.Fatal(err)
					}
					l.Done(router.Outcome{Status: 200})
				}
			})
		}
	}
}

// The requests of others at a target count if CountOthers is set, by its weight; a target
// where this process has none has a place all the same.
func TestCountOthers(t *testing.T) {
	load := func(own, others, prefill int) router.Load {
		return router.Load{Known: true, InFlight: own, Queued: others, Prefill: prefill}
	}
	targets := []router.Target{
		{ID: "theirs", Load: load(1, 9, 0)}, {ID: "none of ours", Load: load(0, 50, 0)}, {ID: "ours", Load: load(10, 0, 0)},
		{ID: "twice", Weight: 2, Load: load(10, 9, 0)}, {ID: "half", Weight: 0.5, Load: load(5, 0, 0)},
		{ID: "tokens", Load: load(1, 0, 1000)}, {ID: "little", Load: load(1, 1, 999)},
	}
	for count, want := range map[bool][]string{
		false: {"ours", "half", "tokens"}, true: {"theirs", "ours", "half", "tokens"},
	} {
		q := newQueue(t, Config{Requests: 10, Prefill: 1000, CountOthers: count})
		var full []string
		for _, x := range q.Places(targets) {
			if x.State == router.Full {
				full = append(full, x.ID)
			}
		}
		if !slices.Equal(full, want) {
			t.Errorf("CountOthers %v: %v are full, want %v", count, full, want)
		}
	}
	for _, x := range targets {
		if x.State != router.Ready {
			t.Errorf("%s was changed", x.ID)
		}
	}
}
