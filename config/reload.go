package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/loadview"
)

// grace is how long a target that left the file is still there for requests that
// had found their route before.
const grace = 10 * time.Second

// Reload puts f in place of the file before, in one step for each request. If it fails,
// nothing is changed. A changed [egress] counts from the next connection on, also for
// targets that stay; a host's own connections to targets are its own to end.
//
// A target with the same ID stays, with its counters, health and requests in flight. A
// route with the same model stays, and remembers the prompts and sessions that it did, also
// with other settings, as long as the bounds of its memory are the same. Only strategies
// with other settings are made again. A target with another api_base keeps its counters
// and health; the prompts that were cached there are forgotten. A target that is no longer
// in the file is not offered any more, finishes its requests and is then forgotten.
//
// While Run runs, Reload waits until subscriptions that are not in f have ended.
func (g *Gateway) Reload(f *file.File) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	return g.replace(f)
}

// replace puts f in place. The lock is held.
func (g *Gateway) replace(f *file.File) error {
	old := g.now.Load()
	if err := g.fixed(f, old); err != nil {
		return err
	}
	s, err := g.build(f, old)
	if err != nil {
		return err
	}
	leaving := make(map[string]departure)
	for id, d := range g.leaving {
		leaving[id] = d
	}
	if old != nil {
		for _, m := range old.members {
			m.Metrics, m.Health = "", "" // another server may be there already
			leaving[m.ID] = departure{m, time.Now()}
		}
	}
	for _, m := range s.members {
		delete(leaving, m.ID)
	}
	members, leaving := g.departed(s.members, leaving)
	if err := g.setFleet(s, members); err != nil {
		err = fmt.Errorf("config: %w", err)
		if old != nil {
			before, _ := g.departed(old.members, g.leaving)
			err = errors.Join(err, g.setFleet(old, before))
		}
		return err
	}
	g.leaving = leaving
	for _, r := range s.routes {
		r.fleet.offers.Store(&r.offers)
	}
	g.now.Store(s)
	if err := g.settleQueue(s, old); err != nil {
		return err // of settings that were checked before
	}
	g.change.notify()
	if old != nil {
		s.forget(old, g.view)
	}
	if g.run != nil {
		g.subscribe(s)
	}
	return nil
}

// Try reports why Reload would refuse f; nil: it would not. It changes nothing.
func (g *Gateway) Try(f *file.File) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	old := g.now.Load()
	if err := g.fixed(f, old); err != nil {
		return err
	}
	_, err := g.build(f, old)
	return err
}

// fixed reports a change from the state before of a table that cannot change.
func (g *Gateway) fixed(f *file.File, old *state) error {
	if old != nil && g.options.Share != nil && !file.Same(old.file.Share, f.Share) {
		return errors.New("config: share: it cannot change while the gateway runs; start it again")
	}
	if old != nil && !file.Same(old.file.TLS, f.TLS) {
		return errors.New("config: tls: it cannot change while the gateway runs; start it again (the contents of its " +
			"files can)")
	}
	return nil
}

// setFleet brings the fleet and the poller to s, with the members given.
func (g *Gateway) setFleet(s *state, members []loadview.Member) error {
	if s.view != g.viewed {
		if err := g.view.SetConfig(g.viewConfig(s.file)); err != nil {
			return err
		}
		if err := g.poller.SetEgress(s.file.Policy()); err != nil {
			return err
		}
		g.viewed = s.view
	}
	if err := g.view.Set(members); err != nil {
		return err
	}
	return g.poller.Set(s.caches)
}

// A departure is a member on its way out.
type departure struct {
	member loadview.Member
	since  time.Time
}

// departed returns the members with those of leaving that still have something to
// finish, and these.
func (g *Gateway) departed(
	members []loadview.Member, leaving map[string]departure,
) ([]loadview.Member, map[string]departure) {
	all := append([]loadview.Member(nil), members...)
	if len(leaving) == 0 {
		return all, leaving
	}
	inFlight := make(map[string]int)
	for _, s := range g.view.Snapshot() {
		inFlight[s.Target.ID] = s.Target.Load.InFlight
	}
	stay := make(map[string]departure)
	for id, d := range leaving {
		over := time.Since(d.since) >= grace
		if over && inFlight[id] == 0 {
			continue
		}
		d.member.Draining = over
		stay[id] = d
		all = append(all, d.member)
	}
	return all, stay
}

// forget has the strategies forget a target that the route does not have any more, and
// one that is another server now.
func (s *state) forget(old *state, view *loadview.View) {
	for name, r := range s.routes {
		was := old.routes[name]
		f, ok := r.strategy.(router.Forgetter)
		if was == nil || !ok {
			continue
		}
		has := make(map[string]bool, len(r.offers))
		for _, o := range r.offers {
			has[o.id] = true
		}
		for _, o := range was.offers {
			if !has[o.id] {
				f.Forget(o.id)
			}
		}
	}
	for id, base := range s.bases {
		if was, ok := old.bases[id]; ok && was != base {
			view.Forget(id)
		}
	}
}
