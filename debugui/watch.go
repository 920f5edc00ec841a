package debugui

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/observe"
	"github.com/warmroute/router/share"
)

// Route has the sources of the page for one route. All but the Name may be nil; the
// page then says so or omits a column. Its functions are safe for concurrent use.
type Route struct {
	// Name is the name passed to Page.Trace.
	Name string
	// Strategy is the strategy's name.
	Strategy string
	// Router ranks prompts that are tried; a *router.Router is one.
	Router interface {
		Explain(context.Context, router.Prompt) ([]router.Candidate, error)
	}
	// View has the targets.
	View View
	// Index reports the number of a target's resident blocks, by its events; a
	// *kvindex.Index is one.
	Index interface {
		Target(id string) (kvindex.TargetStats, bool)
	}
	// Streams returns the event streams and their state.
	Streams func() []Stream
	// Queue is the line in which requests wait; an *admission.Queue is one.
	Queue interface{ Stats() admission.Stats }
	// Share is the view that several gateways share; a *share.Share has one.
	Share interface{ State() share.State }
	// Disagg has prefill and decode on different targets; a *disagg.Splitter does. nil: none.
	Disagg interface {
		Stats() disagg.Stats
		Place(t router.Target) disagg.Place
	}
	// Memory is the budget of bytes for requests, replies and events; a *membudget.Budget is one.
	Memory interface{ Stats() membudget.Stats }
	// Warmed returns the number of prompts recorded for each of ids, as
	// trie.Trie's method of that name does.
	Warmed func(ids []string, n []int) []int
	// Parse converts an entered request to a Prompt, as the gateway does; nil means
	// prompt.FromRequest. A Prompt returned with an error is ranked as well.
	Parse func(path string, h http.Header, body []byte) (router.Prompt, error)
}

// Stream is the state of a target's event stream.
type Stream struct {
	Target string
	// State is the stream's own word; "live" and "partial" look well, "down" and
	// "resyncing" do not.
	State string
	// Trusted says that the index is believed.
	Trusted bool
	// Messages, Gaps, Replays, Malformed and Overflows count from the start.
	Messages, Gaps, Replays, Malformed, Overflows uint64
}

// Watch shows a route, and replaces one with the same name. The page begins with
// the route that was watched last. Watch returns an error if there are more routes
// than the page keeps.
func (p *Page) Watch(w Route) error {
	r := p.route(w.Name)
	if r.name != observe.Clean(w.Name) {
		return fmt.Errorf("debugui: Watch %q: %w", w.Name, errTooMany)
	}
	r.mu.Lock()
	r.watched = w
	r.mu.Unlock()
	p.mu.Lock()
	p.first = r
	p.mu.Unlock()
	return nil
}

var errTooMany = errors.New("more than 100 routes")

// ViewTrace returns hooks for loadview.Config.Trace, which show their events and
// call those of next.
func (p *Page) ViewTrace(next loadview.Trace) loadview.Trace {
	return loadview.Trace{
		Lacks: func(id, name string) {
			p.tell("lacks", info, id, "does not have a model or an adapter: it is passed over for that for a minute")
			if next.Lacks != nil {
				next.Lacks(id, name)
			}
		},
		StateChanged: func(id string, from, to router.State) {
			level := bad
			if to == router.Ready {
				level = good
			} else if to == router.Draining {
				level = info
			}
			p.tell("state", level, id, "was "+from.String()+", is "+to.String())
			if next.StateChanged != nil {
				next.StateChanged(id, from, to)
			}
		},
		PanicChanged: func(v *loadview.View, on bool) {
			if on {
				p.tell("panic", bad, "", "most targets would be out: nobody is")
			} else {
				p.tell("panic", good, "", "most targets serve again")
			}
			if next.PanicChanged != nil {
				next.PanicChanged(v, on)
			}
		},
		Joined: func(m loadview.Member) {
			p.tell("joined", info, m.ID, "joined the fleet")
			if next.Joined != nil {
				next.Joined(m)
			}
		},
		Left: func(id string, inFlight int) {
			p.tell("left", info, id, fmt.Sprintf("left the fleet with %d in flight", inFlight))
			if next.Left != nil {
				next.Left(id, inFlight)
			}
		},
		Forget: func(id string) {
			p.tell("forgot", info, id, "its cache is lost: its prompts are forgotten")
			if next.Forget != nil {
				next.Forget(id)
			}
		},
		ScrapeChanged: func(id string, err error) {
			if err != nil {
				p.tell("scrape", bad, id, "its metrics page cannot be read")
			} else {
				p.tell("scrape", good, id, "its metrics page is read again")
			}
			if next.ScrapeChanged != nil {
				next.ScrapeChanged(id, err)
			}
		},
	}
}

// StreamChanged shows that an event stream entered another state, with the
// reason. Its arguments are those of zmqsub.Trace.Transition, with the states'
// names.
func (p *Page) StreamChanged(id, from, to, why string) {
	level := info
	switch to {
	case "live", "partial":
		level = good
	case "down", "resyncing":
		level = bad
	}
	text := "event stream was " + from + ", is " + to
	if why != "" {
		text += ": " + why
	}
	p.tell("stream", level, id, text)
}

// Gap shows that events are missing between the messages last and seq. It fits
// zmqsub.Trace.Gap.
func (p *Page) Gap(id string, last, seq uint64) {
	missing := "messages are missing"
	switch n := seq - last - 1; {
	case seq <= last || n > 1<<62:
	case n == 1:
		missing = "1 message is missing"
	case n > 1:
		missing = fmt.Sprintf("%d messages are missing", n)
	}
	p.tell("gap", bad, id, fmt.Sprintf("gap in the events: %s between %d and %d", missing, last, seq))
}
