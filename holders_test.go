package router_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

func newHolders(t testing.TB, cfg router.HoldersConfig) *router.Holders {
	t.Helper()
	h, err := router.NewHolders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func wantHolder(t testing.TB, h *router.Holders, id, want string) {
	t.Helper()
	got, ok := h.Holder(id)
	if got != want || ok != (want != "") {
		t.Errorf("%.40q is at (%q, %v), want %q", id, got, ok, want)
	}
}

func TestHolders(t *testing.T) {
	var h router.Holders
	wantHolder(t, &h, "r1", "")
	h.Bind("r1", "a")
	h.Bind("r1", "b")
	h.Bind("", "a")
	wantHolder(t, &h, "r1", "a")
	wantHolder(t, &h, "", "")
	h.Forget("a")
	wantHolder(t, &h, "r1", "b")
	h.Bind("r1", "a") // a new process of the same name
	wantHolder(t, &h, "r1", "b")
	h.Forget("b")
	wantHolder(t, &h, "r1", "a")
	h.Forget("a")
	wantHolder(t, &h, "r1", "")
	h.Forget("nobody")

	long := strings.Repeat("x", 1<<20)
	h.Bind(long, "a")
	wantHolder(t, &h, long, "a")
	wantHolder(t, &h, long[1:], "")
	for id := range h.All() {
		if len(id) > router.MaxHeldID {
			t.Errorf("an id of %d bytes is kept", len(id))
		}
		wantHolder(t, &h, id, "a") // its key is an id too
	}
	if n := h.Len(); n != 1 {
		t.Errorf("%d ids", n)
	}
}

func TestHoldersBounds(t *testing.T) {
	for name, cfg := range map[string]router.HoldersConfig{
		"count": {MaxIDs: 10}, "bytes": {MaxBytes: 10 * 204},
	} {
		h := newHolders(t, cfg)
		for i := range 1000 {
			h.Bind(fmt.Sprintf("r%03d", i), "a")
			h.Holder("r000") // used, so it stays
		}
		if n := h.Len(); n != 10 {
			t.Errorf("%s: %d ids", name, n)
		}
		wantHolder(t, h, "r000", "a")
		wantHolder(t, h, "r990", "")
		wantHolder(t, h, "r999", "a")
	}
	for _, cfg := range []router.HoldersConfig{{MaxIDs: -1}, {MaxBytes: -1}} {
		if h, err := router.NewHolders(cfg); err == nil || h != nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

// Two that pass their bindings to each other know the same, and come to rest.
func TestHoldersShared(t *testing.T) {
	var a, b *router.Holders
	a = newHolders(t, router.HoldersConfig{Bound: func(id, target string) { b.Bind(id, target) }})
	b = newHolders(t, router.HoldersConfig{Bound: func(id, target string) { a.Bind(id, target) }})
	a.Bind("r1", "x")
	b.Bind("r2", "y")
	want := map[string]string{"r1": "x", "r2": "y"}
	for _, h := range []*router.Holders{a, b} {
		if diff := cmp.Diff(want, maps.Collect(h.All())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Whatever is done at once, a Holders does as a plain list of bindings would.
func FuzzHolders(f *testing.F) {
	f.Add([]byte("a1b1!a?1"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		h := newHolders(t, router.HoldersConfig{MaxIDs: 1 << 20})
		type binding struct{ id, target string }
		var plain []binding
		for len(ops) >= 2 {
			op, arg := ops[0], strings.Repeat(string(rune(ops[1])), 1+int(ops[1])*4)
			ops = ops[2:]
			if op == '!' {
				target := string(ops[:min(1, len(ops))])
				h.Forget(target)
				plain = slices.DeleteFunc(plain, func(b binding) bool { return b.target == target })
				continue
			}
			target := string([]byte{op})
			n, has := 0, false
			for _, b := range plain {
				if b.id == arg {
					n, has = n+1, has || b.target == target
				}
			}
			h.Bind(arg, target)
			if n < 4 && !has {
				plain = append(plain, binding{arg, target})
			}
		}
		for _, b := range plain {
			i := slices.IndexFunc(plain, func(o binding) bool { return o.id == b.id })
			wantHolder(t, h, b.id, plain[i].target)
		}
		n := 0
		for range h.All() {
			n++
		}
		if n != len(plain) {
			t.Errorf("%d bindings, want %d", n, len(plain))
		}
	})
}

func TestHoldersStorm(t *testing.T) {
	h := newHolders(t, router.HoldersConfig{MaxIDs: 50})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				id, target := fmt.Sprint("r", (g*31+i)%97), fmt.Sprint("t", i%5)
				h.Bind(id, target)
				h.Holder(id)
				if i%17 == 0 {
					h.Forget(target)
				}
				if i%50 == 0 {
					for range h.All() {
					}
				}
			}
		})
	}
	wg.Wait()
	if n := h.Len(); n > 50 {
		t.Errorf("%d ids", n)
	}
	for i := range 5 {
		h.Forget(fmt.Sprint("t", i))
	}
	for id, target := range h.All() {
		t.Errorf("%s is at %s still", id, target)
	}
}
