// Package debugui serves a live page about routing: an [http.Handler] to mount,
// as with net/http/pprof.
//
// It shows the targets with their state, load and cached share over time, which of
// them are warm for which sizes of prompts, the last decisions with their
// candidates, the events of targets and event streams, and the ranking for a
// prompt that the user enters.
//
// A [Page] gets its data through hooks, each of which also calls the caller's own:
// [Page.Trace] for a router, [Page.ViewTrace] for a fleet, [Page.StreamChanged] and
// [Page.Gap] for event streams. [Page.Watch] takes the types with numbers to read.
// [Page.Strategy] wraps a strategy so that decisions come with their candidates.
//
// # Cost
//
// While the page is closed, a decision costs a short lock and no allocation. For
// [OpenFor] after the page last asked, decisions made by a strategy that
// Page.Strategy wrapped are explained, at most [Config.ExplainRate] a second and as
// many spills once more. That is one Explain inside the fleet's lock for each.
//
// # Who may look
//
// The page has no login. Serve it on a loopback or internal address, or behind a
// server that authenticates. Text of prompts is neither kept nor sent unless
// [Config.ShowPrompts] is set; session keys and token ids never are. A prompt that
// the user enters is not kept. It is a POST from the same origin; everything else
// is a GET. Host names other than localhost have to be in [Config.Hosts], so that
// no other site's page can read this one through a name that resolves to this
// address. Nothing is loaded from other origins, and no page may frame this one.
package debugui

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/observe"
)

// The defaults of Config, and the page's bounds.
const (
	DefaultDecisions   = 200
	DefaultEvents      = 200
	DefaultTargets     = 1000
	DefaultExplainRate = 20
	DefaultMaxBody     = 1 << 20
	// OpenFor is how long the page counts as open after it last asked for news,
	// which it does each second while it can be seen.
	OpenFor = 10 * time.Second

	maxRoutes     = 100
	maxModels     = 64
	maxRows       = 100 // targets, streams or decisions in one reply
	maxCandidates = 16  // kept of one decision
	maxReading    = 16  // replies that are made at once
	maxTrying     = 4   // prompts that are tried at once
	promptHead    = 256 // bytes shown of a prompt's beginning
	promptTail    = 1024
)

// Config has the settings of a Page. The zero Config works.
type Config struct {
	// Title is the page's heading; "" means "Warmroute". It distinguishes several
	// gateways.
	Title string
	// Hosts are the host names, without port, under which the page may be reached,
	// in addition to localhost and IP addresses. "*" is any: for pages behind a
	// server that checks the Host header.
	Hosts []string
	// ShowPrompts keeps and shows the beginning and the end of the prompts of the
	// last decisions, while the page is open. The page says whether it does.
	ShowPrompts bool
	// Decisions is the number of decisions that are kept for each route, and, once
	// more, of those that spilled or failed. 0 means DefaultDecisions; at most
	// 10,000.
	Decisions int
	// Events is the number of events that are kept: changes of state, gaps and the
	// like. 0 means DefaultEvents; at most 10,000.
	Events int
	// Targets is the number of targets of a route for which the cached share is
	// kept over time, about 3 KiB each; the least recently picked is dropped
	// first. 0 means DefaultTargets; at most 100,000.
	Targets int
	// ExplainRate is the number of decisions a second that are explained at most
	// while the page is open. 0 means DefaultExplainRate; less than 0: none.
	ExplainRate int
	// Speed is how many times as fast as the clock the fleet's time runs, as a simulated one's may; durations of
	// requests are multiplied by it. 0 means 1.
	Speed float64
	// MaxBody bounds a prompt to try, in bytes. 0 means DefaultMaxBody.
	MaxBody int64
}

func (c *Config) check() error {
	var errs []error
	atMost := func(name string, v *int, def, most int) {
		switch {
		case *v == 0:
			*v = def
		case *v < 0 || *v > most:
			errs = append(errs, fmt.Errorf("debugui: Config.%s: %d is not from 0 to %d", name, *v, most))
		}
	}
	atMost("Decisions", &c.Decisions, DefaultDecisions, 10_000)
	atMost("Events", &c.Events, DefaultEvents, 10_000)
	atMost("Targets", &c.Targets, DefaultTargets, 100_000)
	if c.ExplainRate == 0 {
		c.ExplainRate = DefaultExplainRate
	} else if c.ExplainRate > 10_000 {
		errs = append(errs, fmt.Errorf("debugui: Config.ExplainRate: %d is more than 10000", c.ExplainRate))
	}
	switch {
	case c.MaxBody == 0:
		c.MaxBody = DefaultMaxBody
	case c.MaxBody < 0 || c.MaxBody > 64<<20:
		errs = append(errs, fmt.Errorf("debugui: Config.MaxBody: %d is not from 0 to %d", c.MaxBody, 64<<20))
	}
	for i, h := range c.Hosts {
		if h == "" || strings.ContainsAny(h, "/ \t") || h != "*" && strings.Contains(h, "*") || strings.Contains(h, ":") {
			errs = append(errs, fmt.Errorf("debugui: Config.Hosts[%d]: %q is no host name; "+
				"ports are left out, and \"*\" stands alone", i, h))
		}
	}
	switch {
	case c.Speed == 0:
		c.Speed = 1
	case !(c.Speed > 0 && c.Speed <= 1e6):
		errs = append(errs, fmt.Errorf("debugui: Config.Speed: %v is not above 0 and at most 1e6", c.Speed))
	}
	if c.Title == "" {
		c.Title = "Warmroute"
	}
	return errors.Join(errs...)
}

// Page is the handler and its data. It is safe for concurrent use, starts no
// goroutine and needs no closing. Make one with New.
type Page struct {
	cfg    Config
	hosts  map[string]bool
	cross  *http.CrossOriginProtection
	models *observe.Names

	asked           atomic.Int64 // when the page last asked for news, in Unix nanoseconds
	reading, trying chan struct{}
	sample, spills  pacer
	story           atomic.Pointer[storyState]

	mu     sync.RWMutex
	routes []*route
	first  *route // the one to show if none is requested
	events ring[event]
	seq    uint64 // of the last event
}

// New returns a Page without routes. Its error names every field of cfg with a bad
// value.
func New(cfg Config) (*Page, error) {
	cfg.Hosts = append([]string(nil), cfg.Hosts...)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Page{
		cfg: cfg, hosts: make(map[string]bool), cross: http.NewCrossOriginProtection(), models: observe.NewNames(maxModels),
		reading: make(chan struct{}, maxReading), trying: make(chan struct{}, maxTrying),
		sample: pacer{rate: cfg.ExplainRate}, spills: pacer{rate: cfg.ExplainRate},
		events: newRing[event](cfg.Events),
	}
	for _, h := range cfg.Hosts {
		p.hosts[strings.ToLower(strings.TrimSuffix(h, "."))] = true
	}
	return p, nil
}

// open reports whether the page is open.
func (p *Page) open(now time.Time) bool {
	return now.UnixNano()-p.asked.Load() < int64(OpenFor)
}

// route returns the route of a name, and makes it if there is none. Routes
// beyond the bound are one, "other".
func (p *Page) route(name string) *route {
	name = observe.Clean(name)
	if r := p.find(name); r != nil {
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.routes) >= maxRoutes {
		name = observe.Other
	}
	for _, r := range p.routes {
		if r.name == name {
			return r
		}
	}
	r := newRoute(p, name)
	p.routes = append(p.routes, r)
	return r
}

func (p *Page) find(name string) *route {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, r := range p.routes {
		if r.name == name {
			return r
		}
	}
	return nil
}

// event is something that happened to a target or its stream.
type event struct {
	Seq    uint64 `json:"seq"`
	At     int64  `json:"at"`   // Unix milliseconds
	Kind   string `json:"kind"` // state, joined, left, forgot, scrape, stream, gap
	Level  string `json:"level"`
	Target string `json:"target"`
	Text   string `json:"text"`
}

// The levels of events: how they look.
const (
	good = "good"
	bad  = "bad"
	info = "info"
)

func (p *Page) tell(kind, level, target, text string) {
	e := event{At: time.Now().UnixMilli(), Kind: kind, Level: level, Target: shown(target), Text: clip(text, 200)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	e.Seq = p.seq
	p.events.add(e)
}

// View is the fleet as the page reads it; a *loadview.View is one.
type View interface {
	Snapshot() []loadview.Status
}

// shown is how the page names a target: a URL without user and query.
func shown(id string) string { return strings.Clone(observe.Clean(observe.Target(id))) }

// clip returns at most n bytes of s, as valid UTF-8.
func clip(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// pacer allows rate calls a second, evenly if there are more, and as many together
// after a pause. It is safe for concurrent use.
type pacer struct {
	rate int
	mu   sync.Mutex
	at   time.Time // when left was right
	left float64
}

func (p *pacer) take(now time.Time) bool {
	if p.rate <= 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	most := float64(p.rate)
	if since := now.Sub(p.at); since > time.Second || since < 0 {
		p.left = most
	} else {
		p.left = min(most, p.left+since.Seconds()*most)
	}
	p.at = now
	if p.left < 1 {
		return false
	}
	p.left--
	return true
}
