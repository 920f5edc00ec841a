package loadview

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/configerr"
)

// View is a fleet and its counters. It is safe for concurrent use and starts no
// goroutine. Make one with New, and further ones over the same pool with Share.
type View struct {
	*pool
	roster atomic.Pointer[roster]
	// truth[i] is roster.members[i] as it is to be offered, offered the copy that
	// pick gets: whatever pick does to that is gone by the next Choose. Both are used
	// under the lock.
	truth, offered []router.Target
	// census counts the members' standings, panicking whether too many are out, dark
	// that nothing listens at any. alarm is what Trace.PanicChanged had last. All are
	// used under the lock.
	census                 census
	panicking, dark, alarm bool
}

// roster is the members of one View. It is never changed.
type roster struct {
	members []*member
	targets []router.Target // members[i] without Load and State
	byID    map[string]*member
}

var (
	_ router.Fleet     = (*View)(nil)
	_ router.Forgetter = (*View)(nil)

	_ router.PromptChooser = (*View)(nil)
	_ router.ReadyTimer    = (*View)(nil)
)

// New returns a View without members, over a pool of its own. Its error is a
// *router.ConfigError for each field of cfg that is not allowed, joined.
func New(cfg Config) (*View, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Jitter = max(cfg.Jitter, 0)
	return newPool(cfg).view(), nil
}

func (p *pool) view() *View {
	v := &View{pool: p}
	v.roster.Store(&roster{})
	return v
}

// Share returns a View without members over the pool of v. A member of both, by
// its ID, is one: they count it together and learn about it together. Weight and
// Ref are each View's own; the rest of a Member is the member's, and the newest Set
// or Put that names it counts, whichever View it came through. A member is gone, with
// its counters and its health, when no View has it any more.
//
// Run, SetConfig and the hooks of Trace are for the pool: one Run does for all. A
// View that is no longer needed is emptied by Set(nil); its members would stay in
// the pool otherwise. A reload makes and fills the new Views first, so that the
// members that stay keep what they have.
func (v *View) Share() *View { return v.pool.view() }

// SetConfig replaces the View's Config, for all Views over its pool, from now on. It
// takes over the health (CoolAfter to BreakerOpen), Scrape, Probe, Egress and TLS; Run
// begins again with them. Now, Rand, Share, Adapters, Trace and Scrape.Dialects stay as New got them. A
// cool-down under way keeps its end. A member with a URL that the new Egress denies
// stays: its scrapes and probes fail. A Config that is not allowed is an error, as in
// New, and nothing is changed.
func (v *View) SetConfig(cfg Config) error {
	old := v.cfg.Load()
	cfg.Now, cfg.Rand, cfg.Trace = old.Now, old.Rand, old.Trace
	cfg.Scrape.Dialects, cfg.Share, cfg.Adapters = old.Scrape.Dialects, old.Share, old.Adapters
	cfg = cfg.WithDefaults()
	if err := cfg.check(); err != nil {
		return err
	}
	cfg.Jitter = max(cfg.Jitter, 0)
	cfg.Egress.AllowHosts = slices.Clone(cfg.Egress.AllowHosts)
	v.cfg.Store(&cfg)
	v.mu.Lock()
	now := v.now()
	for _, m := range v.members {
		for _, at := range m.places {
			at.view.judge(now)
		}
	}
	v.mu.Unlock()
	v.wake()
	v.notify()
	return nil
}

// Set makes ms the members of v. Those that stay keep their counters, their health
// and the state of SetDraining; Weight, Ref and Draining are taken from ms. One that
// leaves does not return: under the same ID a new one begins, and requests in flight
// on the old one settle its counters only. An empty ID, an ID that is there twice,
// an infinite weight or a URL that is none or is denied is an error, a
// *router.ConfigError for each, joined; then nothing is changed.
//
// ms is not kept.
func (v *View) Set(ms []Member) error {
	bad := configerr.List{Package: "loadview: Set"}
	seen := make(map[string]int, len(ms))
	for i := range ms {
		v.check(&bad, fmt.Sprintf("Members[%d].", i), &ms[i])
		if first, twice := seen[ms[i].ID]; twice && ms[i].ID != "" {
			bad.Check(false, fmt.Sprintf("Members[%d].ID", i), ms[i].ID,
				fmt.Sprintf("another one than that of Members[%d]", first))
		} else {
			seen[ms[i].ID] = i
		}
	}
	if err := bad.Err(); err != nil {
		return err
	}
	v.setting.Lock()
	defer v.setting.Unlock()
	targets := make([]router.Target, len(ms))
	for i, c := range ms {
		targets[i] = router.Target{ID: c.ID, Weight: c.Weight, Ref: c.Ref}
	}
	v.change(targets, ms)
	return nil
}

// Put adds m to the members of v, as the last one, or replaces the one with its
// ID, which keeps its counters, its health, its place and the state of SetDraining.
// The errors are those of Set. It takes time linear in the number of members.
func (v *View) Put(m Member) error {
	bad := configerr.List{Package: "loadview: Put"}
	v.check(&bad, "Member.", &m)
	if err := bad.Err(); err != nil {
		return err
	}
	v.setting.Lock()
	defer v.setting.Unlock()
	old := v.roster.Load()
	t := router.Target{ID: m.ID, Weight: m.Weight, Ref: m.Ref}
	targets := slices.Clone(old.targets)
	if i := slices.IndexFunc(targets, func(t router.Target) bool { return t.ID == m.ID }); i >= 0 {
		targets[i] = t
	} else {
		targets = append(targets, t)
	}
	v.change(targets, []Member{m})
	return nil
}

// Remove takes the member with this ID out of v, as a Set without it does, and
// reports whether it was there. It takes time linear in the number of members.
func (v *View) Remove(id string) bool {
	v.setting.Lock()
	defer v.setting.Unlock()
	old := v.roster.Load()
	if old.byID[id] == nil {
		return false
	}
	v.change(slices.DeleteFunc(slices.Clone(old.targets), func(t router.Target) bool { return t.ID == id }), nil)
	return true
}

// change makes targets, which are this View's then, its members. given has those of
// them that are new or changed. v.setting is held.
func (v *View) change(targets []router.Target, given []Member) {
	p := v.pool
	old := v.roster.Load()
	next := &roster{
		members: make([]*member, len(targets)), targets: targets,
		byID: make(map[string]*member, len(targets)),
	}
	var joined []*Member
	var left []*member
	p.mu.Lock()
	now := p.now()
	for i := range given {
		c := &given[i]
		m := p.byID[c.ID]
		if m == nil {
			m = p.newMember(c.ID)
			p.byID[c.ID] = m
			p.members = append(p.members, m)
			joined = append(joined, c)
		}
		m.setSource(c)
		m.set(drainSet, c.Draining)
		m.weight = c.Weight
	}
	truth, added := make([]router.Target, len(targets)), false
	for i := range targets {
		m := p.byID[targets[i].ID]
		targets[i].ID = m.id // the same string for as long as it stays
		next.members[i], next.byID[m.id] = m, m
		truth[i] = targets[i]
		truth[i].Load, truth[i].State = m.load, m.state
		at := slices.IndexFunc(m.places, func(p place) bool { return p.view == v })
		if at < 0 {
			at, added = len(m.places), true
			m.places = append(m.places, place{view: v})
		}
		m.places[at].index = i
	}
	for _, m := range old.members {
		if next.byID[m.id] != nil {
			continue
		}
		m.places = slices.DeleteFunc(m.places, func(p place) bool { return p.view == v })
		if len(m.places) == 0 {
			m.gone = true
			p.countFull(m.state, -1)
			delete(p.byID, m.id)
			m.peers.leave(m.id)
			left = append(left, m)
		}
	}
	if len(left) > 0 {
		isGone := func(m *member) bool { return m.gone }
		p.members = slices.DeleteFunc(p.members, isGone)
		p.changed = slices.DeleteFunc(p.changed, isGone)
		p.warming = slices.DeleteFunc(p.warming, isGone)
	}
	for _, c := range joined {
		m := p.byID[c.ID]
		m.seen = seen(m.stateAt(now))
	}
	v.truth, v.offered = truth, make([]router.Target, len(targets))
	v.recount(now)
	p.expire(now)
	p.spreadQueued()
	v.roster.Store(next)
	if added {
		p.signal()
	}
	p.mu.Unlock()
	p.wake()

	t := &p.cfg.Load().Trace
	for _, m := range left {
		if t.Left != nil {
			t.Left(m.id, toInt(m.inFlight.Load()))
		}
		v.forgetAll(m.id)
	}
	if t.Joined != nil {
		for _, c := range joined {
			t.Joined(*c)
		}
	}
	p.notify()
}

// check adds to bad the fields of m that are not allowed.
func (v *View) check(bad *configerr.List, at string, m *Member) {
	bad.Check(m.ID != "", at+"ID", m.ID, "not empty")
	add := func(e router.ConfigError) {
		e.Field = at + e.Field
		bad.Add(fmt.Errorf("member %q: %w", m.ID, &e))
	}
	if math.IsInf(m.Weight, 0) {
		add(router.ConfigError{Field: "Weight", Value: m.Weight, Allowed: "finite"})
	}
	policy := v.cfg.Load().Egress
	for _, u := range [...]struct{ field, url string }{{"Metrics", m.Metrics}, {"Health", m.Health}} {
		if err := checkURL(policy, u.url); err != nil {
			add(router.ConfigError{Field: u.field, Allowed: "an http or https URL", Err: err})
		}
	}
}

// checkURL checks a member's URL, which may be "".
func checkURL(p egress.Policy, url string) error {
	if url == "" {
		return nil
	}
	if err := p.CheckURL(url); err != nil {
		return err
	}
	if !strings.HasPrefix(strings.ToLower(url), "http") {
		return errors.New("it is not an http or https URL")
	}
	return nil
}

// SetDraining sets whether the member takes no new requests and finishes those it
// has. It is apart from Member.Draining and outlasts the next Set: a member
// drains while either is true. Once its InFlight in a Snapshot is 0 it can be
// left out of the next Set.
func (v *View) SetDraining(id string, on bool) error {
	return v.setFlag("SetDraining", id, drainAsked, on)
}

// SetUnhealthy sets whether the member is Unhealthy by the word of the caller, who
// may have probes of its own. The lessons of outcomes and of Run's probes stay apart
// from it, and a panic does not override it.
func (v *View) SetUnhealthy(id string, on bool) error {
	return v.setFlag("SetUnhealthy", id, unhealthy, on)
}

func (v *View) setFlag(call, id string, flag uint32, on bool) error {
	v.mu.Lock()
	m := v.byID[id]
	if m == nil {
		v.mu.Unlock()
		return fmt.Errorf("%w: %s of %q", ErrUnknown, call, id)
	}
	m.set(flag, on)
	v.putState(m, v.now())
	v.mu.Unlock()
	v.notify()
	return nil
}
