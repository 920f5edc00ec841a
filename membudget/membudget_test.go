package membudget_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/membudget"
)

func mustNew(t testing.TB, c membudget.Config) *membudget.Budget {
	t.Helper()
	b, err := membudget.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConfig(t *testing.T) {
	_, err := membudget.New(membudget.Config{
		Limit: -1, Shares: map[string]float64{"a": 0, "b": 1.5, "c": math.NaN(), "d": 1},
	})
	for _, field := range []string{"Limit is -1", `Shares["a"] is 0`, `Shares["b"] is 1.5`, `Shares["c"] is NaN`} {
		if err == nil || !strings.Contains(err.Error(), "membudget: "+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	var bad *router.ConfigError
	if !errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
	sum := 0.0
	for _, s := range membudget.DefaultShares() {
		sum += s
	}
	if sum > 1+1e-9 {
		t.Errorf("the default shares add up to %v", sum)
	}
	var none *membudget.Budget
	a := none.Account("x")
	if err := a.Reserve(1 << 60); err != nil || a.Used() != 0 || a.Limit() != math.MaxInt64 || a.Name() != "" {
		t.Errorf("a nil Account: %v", err)
	}
	if err := a.Wait(context.Background(), 1<<60); err != nil {
		t.Error(err)
	}
	a.Release(1)
	if s := none.Stats(); s.Limit != 0 {
		t.Errorf("%+v", s)
	}
}

// TestModel holds accounts to sums that a naive model makes: none exceeds its limit or all of them the Budget's, a
// reservation fails only if it would, and the error says which.
func TestModel(t *testing.T) {
	names := []string{"a", "b", "c"}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		limit := rng.Int64N(1000) + 10
		c := membudget.Config{Limit: limit, Shares: map[string]float64{"a": 0.5, "b": 0.7}}
		limits := map[string]int64{"a": limit / 2, "b": int64(0.7 * float64(limit)), "c": limit}
		b := mustNew(t, c)
		used, peak, shed, sum := map[string]int64{}, map[string]int64{}, map[string]uint64{}, int64(0)
		for range 500 {
			name := names[rng.IntN(3)]
			a := b.Account(name)
			if n := rng.Int64N(limit + 10); rng.IntN(2) == 0 {
				err := a.Reserve(n)
				var e *membudget.Error
				switch fits := n == 0 || used[name]+n <= limits[name] && sum+n <= limit; {
				case fits != (err == nil):
					t.Fatalf("seed %d: %d for %s with %v: %v", seed, n, name, used, err)
				case fits:
					used[name], sum = used[name]+n, sum+n
					peak[name] = max(peak[name], used[name])
				case !errors.As(err, &e) || !errors.Is(err, membudget.ErrShed) || e.Account != name ||
					e.Never != (n > limits[name]) || !strings.Contains(e.Message(), name):
					t.Fatalf("seed %d: %v", seed, err)
				default:
					shed[name]++
					if e.Never != (e.StatusCode() == 413) || e.Never != (e.RetryAfter() == 0) {
						t.Fatalf("%v: %d", e, e.StatusCode())
					}
				}
			} else {
				n = min(n, used[name])
				a.Release(n)
				used[name], sum = used[name]-n, sum-n
			}
			if rng.IntN(100) == 0 { // below what is used, too
				limit = rng.Int64N(1000) + 10
				c.Limit = limit
				limits = map[string]int64{"a": limit / 2, "b": int64(0.7 * float64(limit)), "c": limit}
				if err := b.Set(c); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := b.Stats()
		if s.Used != sum || s.Limit != limit || len(s.Accounts) != 3 {
			t.Fatalf("seed %d: %+v; want %d of %d", seed, s, sum, limit)
		}
		for i, a := range s.Accounts {
			if a.Name != names[i] || a.Used != used[a.Name] || a.Peak != peak[a.Name] || a.Shed != shed[a.Name] ||
				a.Limit != limits[a.Name] {
				t.Fatalf("seed %d: %+v; want %d, peak %d, shed %d", seed, a, used[a.Name], peak[a.Name], shed[a.Name])
			}
		}
	}
}

// TestConcurrent: the sums are right and within the limit, in any order.
func TestConcurrent(t *testing.T) {
	b := mustNew(t, membudget.Config{Limit: 1000, Shares: map[string]float64{"a": 0.6, "b": 0.6}})
	var wg sync.WaitGroup
	for g := range 8 {
		a := b.Account([]string{"a", "b"}[g%2])
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for range 2000 {
				n := rng.Int64N(300)
				if g >= 6 {
					if a.Wait(context.Background(), n) != nil {
						t.Error("Wait failed")
						return
					}
				} else if a.Reserve(n) != nil {
					continue
				}
				if used := a.Used(); used > 600 {
					t.Errorf("%d are used", used)
				}
				a.Release(n)
			}
		})
	}
	wg.Wait()
	s := b.Stats()
	if s.Used != 0 || s.Peak > 1000 || s.Accounts[0].Used+s.Accounts[1].Used != 0 {
		t.Errorf("%+v", s)
	}
}

// TestWait: it waits until others release bytes, of the account or of another, and no longer than its context.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew(t, membudget.Config{Limit: 100, Shares: map[string]float64{"a": 0.5}})
		a, other := b.Account("a"), b.Account("other")
		for _, holder := range []*membudget.Account{a, other} {
			if err := holder.Reserve(50); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() { done <- a.Wait(t.Context(), 10) }()
		for _, holder := range []*membudget.Account{a, other} {
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatal("too early:", err)
			default:
			}
			holder.Release(5)
		}
		a.Release(5)
		if err := <-done; err != nil || a.Used() != 50 {
			t.Errorf("%v, %d used", err, a.Used())
		}
		stop := errors.New("stop")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, stop)
		defer cancel()
		if err := a.Wait(ctx, 10); err != stop {
			t.Error(err)
		}
		var e *membudget.Error
		if err := a.Wait(t.Context(), 51); !errors.As(err, &e) || !e.Never {
			t.Error(err)
		}
		go func() { done <- a.Wait(t.Context(), 50) }()
		synctest.Wait()
		if err := b.Set(membudget.Config{Limit: 200, Shares: map[string]float64{"a": 0.5}}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestHold(t *testing.T) {
	b := mustNew(t, membudget.Config{Limit: 100})
	a := b.Account("x")
	h := a.Hold()
	for _, c := range []struct{ set, has int64 }{{60, 60}, {20, 20}, {101, 20}, {100, 100}, {-1, 0}, {7, 7}} {
		err := h.Set(c.set)
		if (err == nil) != (c.set == c.has || c.set < 0) || h.Bytes() != c.has || a.Used() != c.has {
			t.Errorf("%d: %v, has %d, want %d", c.set, err, h.Bytes(), c.has)
		}
	}
	if err := h.Add(94); err == nil || h.Add(93) != nil || h.Account() != a {
		t.Error("Add")
	}
	h.Release()
	h.Release()
	if a.Used() != 0 || h.Bytes() != 0 {
		t.Errorf("%d are left", a.Used())
	}
	var zero membudget.Hold
	if zero.Set(1<<60) != nil || zero.Bytes() != 0 {
		t.Error("the zero Hold bounds something")
	}
	zero.Release()
}

// TestReadAll: all is read whatever the length, the bound and the announcement are, in memory that was reserved, at
// most twice the bytes that came.
func TestReadAll(t *testing.T) {
	data := make([]byte, 100_000)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	for _, n := range []int{0, 1, 8191, 8192, 8193, 16384, 50_000, 99_999, 100_000} {
		for _, most := range []int64{0, 10, 8191, 8192, 50_000, 1 << 30} {
			for _, announced := range []int64{-1, 0, int64(n), 1 << 40} {
				b := mustNew(t, membudget.Config{Limit: 1 << 30})
				h := b.Account("x").Hold()
				got, err := membudget.ReadAll(&h, iotest.HalfReader(bytes.NewReader(data[:n])), announced, most)
				want := data[:min(int64(n), most+1)]
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d of %d, announced %d: %d bytes, %v", n, most, announced, len(got), err)
				}
				if h.Bytes() < int64(cap(got)) || h.Bytes() > max(2*int64(n), 8<<10)+2 {
					t.Fatalf("%d of %d, announced %d: %d reserved for %d", n, most, announced, h.Bytes(), cap(got))
				}
				h.Release()
			}
		}
	}
	b := mustNew(t, membudget.Config{Limit: 20_000})
	h := b.Account("x").Hold()
	if _, err := membudget.ReadAll(&h, bytes.NewReader(data), -1, 1<<30); !errors.Is(err, membudget.ErrShed) {
		t.Error(err)
	}
	broken := errors.New("broken")
	h.Release()
	r := io.MultiReader(bytes.NewReader(data[:10]), iotest.ErrReader(broken))
	if _, err := membudget.ReadAll(&h, r, -1, 100); err != broken {
		t.Error(err)
	}
}

func BenchmarkReserve(b *testing.B) {
	a := mustNew(b, membudget.Config{}).Account(membudget.Bodies)
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if a.Reserve(1000) != nil {
				b.Fatal("refused")
			}
			a.Release(1000)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if a.Reserve(1000) == nil {
					a.Release(1000)
				}
			}
		})
	})
}
