package router_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
)

func TestScope(t *testing.T) {
	for _, tt := range []struct {
		p    router.Prompt
		want string
	}{
		{router.Prompt{}, ""},
		{router.Prompt{Model: "meta-llama/Llama-3.1-8B-Instruct", Session: "s", Text: "t", Tokens: []uint32{1}},
			"meta-llama/Llama-3.1-8B-Instruct"},
		{router.Prompt{Model: "m\x00"}, "m\x00"},
		{router.Prompt{Model: "m", Adapter: "sql"}, "\x001:m3:sql"},
		{router.Prompt{Model: "m", Salt: "s"}, "\x001:m0:s"},
		{router.Prompt{Model: "\x00m"}, "\x002:\x00m0:"},
	} {
		if got := tt.p.Scope(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.p, got, tt.want)
		}
	}
	p := router.Prompt{Model: "meta-llama/Llama-3.1-8B-Instruct", Text: "hello"}
	if n := testing.AllocsPerRun(100, func() { _ = p.Scope() }); n != 0 {
		t.Errorf("a plain model costs %v allocations", n)
	}
}

// scopes fails the test unless the keys of two scopes are the same exactly where
// the scopes are.
func scopes(t *testing.T, a, b router.Prompt) {
	t.Helper()
	same := a.Model == b.Model && a.Adapter == b.Adapter && a.Salt == b.Salt
	if ka, kb := a.Scope(), b.Scope(); (ka == kb) != same {
		t.Errorf("%+v has %q, %+v has %q", a, ka, b, kb)
	}
}

// No two scopes share a key: all short scopes over the characters of which keys
// are made, each with each other.
func TestScopesDiffer(t *testing.T) {
	var words []string
	for _, a := range []string{"", "\x00", "0", "1", ":"} {
		for _, b := range []string{"", "\x00", "0", "1", ":"} {
			words = append(words, a+b)
		}
	}
	keys := map[string]router.Prompt{}
	for _, m := range words {
		for _, a := range words {
			for _, s := range words {
				p := router.Prompt{Model: m, Adapter: a, Salt: s}
				if q, ok := keys[p.Scope()]; ok {
					scopes(t, p, q)
				}
				keys[p.Scope()] = p
			}
		}
	}
	// Keys of keys: a scope with another one's key as Model.
	rng := rand.New(rand.NewPCG(1, 1))
	var all []router.Prompt
	for _, p := range keys {
		all = append(all, p)
		if len(all) == 200 {
			break
		}
	}
	for range 2000 {
		p, q := all[rng.IntN(len(all))], all[rng.IntN(len(all))]
		scopes(t, router.Prompt{Model: p.Scope()}, q)
		scopes(t, router.Prompt{Model: p.Scope(), Salt: q.Scope()}, q)
		scopes(t, router.Prompt{Model: p.Model, Adapter: q.Scope()}, router.Prompt{Model: p.Model + q.Scope()})
	}
}

func FuzzScope(f *testing.F) {
	f.Add("m", "a", "s", "m", "as", "")
	f.Add("\x001:m0:", "", "", "m", "", "")
	f.Add("m", "", "1:a", "m", "1:a", "")
	f.Add("11:", "", "x", "1", "1:", "x")
	f.Fuzz(func(t *testing.T, m1, a1, s1, m2, a2, s2 string) {
		p, q := router.Prompt{Model: m1, Adapter: a1, Salt: s1}, router.Prompt{Model: m2, Adapter: a2, Salt: s2}
		scopes(t, p, q)
		scopes(t, p, p)
		scopes(t, p, router.Prompt{Model: q.Scope()})
		scopes(t, p, router.Prompt{Model: p.Scope()})
	})
}

func TestLength(t *testing.T) {
	for _, tt := range []struct {
		p    router.Prompt
		n    int
		unit router.Unit
	}{
		{router.Prompt{}, 0, router.Bytes},
		{router.Prompt{Text: "héllo"}, 6, router.Bytes},
		{router.Prompt{Tokens: []uint32{1, 2}}, 2, router.Tokens},
		{router.Prompt{Text: "hello", Tokens: []uint32{1, 2}}, 2, router.Tokens},
		{router.Prompt{Text: "hello", Tokens: []uint32{}}, 5, router.Bytes},
	} {
		if n, u := tt.p.Length(); n != tt.n || u != tt.unit {
			t.Errorf("%+v: %d %v", tt.p, n, u)
		}
	}
}

func TestFinal(t *testing.T) {
	for s := range 256 {
		want := s == int(router.Finished) || s == int(router.Failed) || s == int(router.Canceled)
		if router.Stage(s).Final() != want {
			t.Errorf("stage %d", s)
		}
	}
}

// Names end up in metric labels: they are short, in snake case, and no two are
// the same.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	name := func(s string) {
		t.Helper()
		if s == "" || seen[s] || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("%q", s)
		}
		seen[s] = true
	}
	for s := router.Stage(0); s < 9; s++ {
		name(s.String())
	}
	clear(seen)
	for s := router.State(0); s < 9; s++ {
		name(s.String())
	}
	name(router.Bytes.String())
	name(router.Tokens.String())
	if r := router.ReasonOf(router.Ready); r != "" {
		t.Errorf("Ready is passed over for %q", r)
	}
	clear(seen)
	for s := router.Unhealthy; s <= router.Asleep+1; s++ {
		name(string(router.ReasonOf(s)))
	}
}

// The states are in the order that is documented, and the zero one is Ready.
func TestStates(t *testing.T) {
	var zero router.Target
	states := []router.State{zero.State, router.Unhealthy, router.Cooling, router.Tripped, router.Draining}
	if got := fmt.Sprint(states); got != "[ready unhealthy cooling tripped draining]" {
		t.Error(got)
	}
	for i, s := range states {
		if int(s) != i {
			t.Errorf("%v is %d", s, s)
		}
	}
}

func TestErrors(t *testing.T) {
	var err error = &router.NoTargetError{Offered: 5, Excluded: 1, NotReady: 4, RetryAfter: 1500 * time.Millisecond}
	wrapped := fmt.Errorf("gateway: %w", err)
	var e *router.NoTargetError
	if !errors.Is(wrapped, router.ErrNoTarget) || !errors.As(wrapped, &e) || e.Offered != 5 ||
		errors.Is(err, context.Canceled) {
		t.Errorf("%#v", wrapped)
	}
	for err, want := range map[error]string{
		err:                                   "router: no target: 5 offered, 1 excluded, 4 not ready, retry after 1.5s",
		&router.NoTargetError{}:               "router: no target: 0 offered, 0 excluded, 0 not ready",
		&router.StatusError{Status: 503}:      "router: the target answered with status 503",
		&router.StatusError{}:                 "router: the target failed",
		&router.StatusError{RetryAfter: 1000}: "router: the target failed",
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err.Error(), want)
		}
	}
	if errors.Is(&router.StatusError{Status: 503}, router.ErrNoTarget) {
		t.Error("an attempt was made")
	}
}
