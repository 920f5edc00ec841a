package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// member is one replica that the gateway knows of.
type member struct {
	name   string
	url    string
	server *vllmtest.Server // nil: a liar
	close  func()
}

// fleet is the replicas, their faults, and the file that lists them for the
// gateway.
type fleet struct {
	gateway *gateway // nil until it has been started
	path    string
	random  *rand.Rand
	log     func(string)

	model, strategy string // of the only route
	members         []*member
	made            int
	stay            int            // the first members that never leave
	did             map[string]int // how often each thing went wrong
	ledger          ledger
	surge           func(context.Context) // sends more than fits
	past            vllmtest.Stats        // of members that left
}

// maxGuests is the greatest number of members in addition to those that stay.
const maxGuests = 3

func (f *fleet) replica() error {
	s, err := vllmtest.New(vllmtest.Config{
		// Fast, and with so little cache that it evicts.
		TimeScale: 0.02, ReplyTokens: 24, Blocks: 4096,
		// So few at once that a surge of clients is more than all admit.
		MaxRequests: 24,
	})
	if err != nil {
		return err
	}
	f.add(&member{url: s.URL, server: s, close: s.Close})
	return s.SetFaults(healthy)
}

func (f *fleet) add(m *member) {
	f.made++
	m.name = fmt.Sprintf("replica-%d", f.made)
	f.members = append(f.members, m)
}

// publish writes the file atomically, and makes the gateway read it.
func (f *fleet) publish() error {
	var b strings.Builder
	b.WriteString(`[metrics_scrape]
enabled = true
interval_secs = 0.5
timeout_secs = 1
[health_probe]
enabled = true
interval_secs = 0.5
timeout_secs = 1
[health]
cool_base = "100ms"
cool_max = "500ms"
`)
	for _, m := range f.members {
		fmt.Fprintf(&b, "[[providers]]\nname = %q\napi_base = %q\n", m.name, m.url)
	}
	fmt.Fprintf(&b, "[[routes]]\nmodel = %q\nstrategy = %q\n", f.model, f.strategy)
	for _, m := range f.members {
		fmt.Fprintf(&b, "[[routes.targets]]\nprovider = %q\n", m.name)
	}
	// As many attempts as there may be replicas that are wrong at once, and one more.
	fmt.Fprintf(&b, "[routes.failover]\nfail_open = true\nattempts = %d\n", maxGuests+2)
	if f.strategy == "cache_aware" {
		// So little that it is full, and forgets, long before the warm-up is over.
		b.WriteString("[routes.cache_aware]\nmax_bytes = 1_000_000\n")
	}
	next := f.path + ".next"
	if err := os.WriteFile(next, []byte(b.String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, f.path); err != nil {
		return err
	}
	if f.gateway == nil {
		return nil
	}
	return f.gateway.reload()
}

// remove takes the member at i out, at once or after the gateway had time to let
// its requests finish.
func (f *fleet) remove(ctx context.Context, i int, orderly bool) error {
	m := f.members[i]
	f.members = slices.Delete(f.members, i, i+1)
	f.ledger.breaks(m.name, time.Second)
	if !orderly {
		m.close()
	}
	err := f.publish()
	if orderly {
		pause(ctx, time.Second)
		m.close()
	}
	if m.server != nil {
		s := m.server.Stats()
		f.past.Requests += s.Requests
		f.past.Faulted += s.Faulted
	}
	return err
}

// wrong is one fault: its action, and the time until the replica is healed.
type wrong struct {
	name   string
	fault  vllmtest.Faults
	lasts  time.Duration
	kill   bool
	breaks bool // replies that have begun
}

// poison is in the prompts that no replica can serve: each answers 500. It blames none of them.
const poison = "p0ison0us"

// healthy is a replica that nothing is wrong with.
var healthy = vllmtest.Faults{Status: 500, Poison: poison}

// spoilt is f for every prompt, or f on top of healthy if it answers none by itself.
func spoilt(f vllmtest.Faults) vllmtest.Faults {
	if f.Status == 0 && f.Next == 0 {
		f.Status, f.Poison = healthy.Status, healthy.Poison
	}
	return f
}

var wrongs = []wrong{
	{"kill", vllmtest.Faults{Refuse: true}, time.Second, true, true},
	{"restart", vllmtest.Faults{}, 0, true, true},
	{"hang", vllmtest.Faults{Hang: true, Probes: true}, time.Second, false, false},
	{"500", vllmtest.Faults{Status: 500}, time.Second, false, false},
	{"503", vllmtest.Faults{Status: 503, Probes: true}, time.Second, false, false},
	{"429", vllmtest.Faults{Status: 429, RetryAfter: time.Second}, time.Second, false, false},
	{"reset", vllmtest.Faults{Refuse: true, Next: 20}, 0, false, false},
	{"slow", vllmtest.Faults{Slow: 30}, time.Second, false, false},
	{"late", vllmtest.Faults{Delay: 500 * time.Millisecond}, time.Second, false, false},
	{"cut", vllmtest.Faults{CutAfter: 5}, time.Second, false, true},
	{"asleep", vllmtest.Faults{Asleep: true}, 1500 * time.Millisecond, false, false},
	// Fast and wrong: such a replica looks idle.
	{"error as an event", vllmtest.Faults{Status: 200, Body: "data: {\"error\":{\"code\":500}}\n\n"}, time.Second,
		false, false},
	{"error under 200", vllmtest.Faults{Status: 200, Body: `{"error":{"type":"server_error"}}`}, time.Second, false, false},
	{"login page", vllmtest.Faults{Status: 200, Body: "<!DOCTYPE html><html>Sign in</html>"}, time.Second, false, false},
	{"redirect", vllmtest.Faults{Status: 302}, time.Second, false, false},
	{"no such model", vllmtest.Faults{Status: 404}, time.Second, false, false},
	{"garbage metrics", vllmtest.Faults{GarbageMetrics: true}, time.Second, false, false},
	{"hung metrics", vllmtest.Faults{HangMetrics: true}, time.Second, false, false},
}

// churn lets one thing after the other go wrong until ctx is done, each kind in turn
// and in an order of its own each time.
func (f *fleet) churn(ctx context.Context) error {
	for {
		var kinds []func() error
		for _, w := range wrongs {
			kinds = append(kinds, func() error { return f.spoil(ctx, w) })
		}
		for range 3 {
			kinds = append(kinds,
				func() error { return f.join(false) },
				func() error { return f.join(true) },
				func() error { return f.leave(ctx) })
		}
		kinds = append(kinds, func() error { return f.overload(ctx) })
		f.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, do := range kinds {
			if err := do(); err != nil {
				return err
			}
			if !pause(ctx, time.Duration(200+f.random.IntN(400))*time.Millisecond) {
				return nil
			}
		}
	}
}

func (f *fleet) happened(name string, m *member) {
	f.did[name]++
	f.log(fmt.Sprintf("%s: %s", m.name, name))
}

// spoil does w to one of the members that stay and heals it.
func (f *fleet) spoil(ctx context.Context, w wrong) error {
	m := f.members[f.random.IntN(f.stay)]
	f.happened(w.name, m)
	if w.breaks {
		f.ledger.breaks(m.name, w.lasts)
		defer f.ledger.breaks(m.name, 0)
	}
	if err := m.server.SetFaults(spoilt(w.fault)); err != nil {
		return err
	}
	if w.kill {
		if err := m.server.Restart(); err != nil {
			return err
		}
	}
	if w.fault.Next > 0 {
		return nil // it ends by itself
	}
	pause(ctx, w.lasts)
	return m.server.SetFaults(healthy)
}

// overload has more clients for a second than all replicas together admit.
func (f *fleet) overload(ctx context.Context) error {
	f.did["overload"]++
	f.log("all: overload")
	f.ledger.breaks("", time.Second)
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	f.surge(ctx)
	f.ledger.breaks("", 0)
	return nil
}

func (f *fleet) join(liar bool) error {
	if len(f.members) >= f.stay+maxGuests {
		return nil
	}
	if liar {
		l, err := newLiar()
		if err != nil {
			return err
		}
		f.add(&member{url: l.url, close: l.close})
		f.happened("malformed", f.members[len(f.members)-1])
		f.ledger.breaks(f.members[len(f.members)-1].name, 24*time.Hour)
	} else {
		if err := f.replica(); err != nil {
			return err
		}
		f.happened("join", f.members[len(f.members)-1])
	}
	return f.publish()
}

func (f *fleet) leave(ctx context.Context) error {
	if len(f.members) == f.stay {
		return nil
	}
	i, orderly := f.stay+f.random.IntN(len(f.members)-f.stay), f.random.IntN(2) == 0
	f.happened(map[bool]string{true: "leave", false: "vanish"}[orderly], f.members[i])
	return f.remove(ctx, i, orderly)
}

// calm heals everything and takes the guests out.
func (f *fleet) calm(ctx context.Context) error {
	var errs []error
	for len(f.members) > f.stay {
		errs = append(errs, f.remove(ctx, len(f.members)-1, true))
	}
	for _, m := range f.members {
		errs = append(errs, m.server.SetFaults(vllmtest.Faults{}))
	}
	return errors.Join(errs...)
}

// busy is how many requests the replicas have.
func (f *fleet) busy() int {
	n := 0
	for _, m := range f.members {
		s := m.server.Stats()
		n += s.Running + s.Waiting
	}
	return n
}

func (f *fleet) close() {
	for _, m := range f.members {
		m.close()
	}
}

// pause waits and reports whether ctx lasted that long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
