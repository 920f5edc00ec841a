// Package warmroute is a Caddy module: reverse_proxy with it as lb_policy sends
// each prompt to the replica that can answer soonest.
//
//	reverse_proxy 10.0.0.1:8000 10.0.0.2:8000 {
//		lb_policy warmroute {
//			strategy least_work
//		}
//	}
//
// Health, limits and retries stay Caddy's. The policy chooses among the upstreams
// that Caddy offers for the request, and sees through reverse_proxy's transport how
// each attempt ended.
package warmroute

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/dustin/go-humanize"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
)

// The defaults of Policy.
const (
	DefaultStrategy  = "least_work"
	DefaultMaxBody   = 32 << 20
	DefaultMaxBodies = 1 << 30
)

// Caddy finds modules that their packages register when they are loaded.
func init() {
	caddy.RegisterModule(new(Policy))
	caddy.RegisterModule(new(adminAPI))
}

// Policy is the selection policy "warmroute". The zero Policy is one with the
// defaults.
type Policy struct {
	// Strategy is how replicas are chosen.
	Strategy Strategy `json:"strategy,omitzero"`
	// Weights are the capacities of upstreams relative to the others, by their dial
	// address; those that are not in it have 1.
	Weights map[string]float64 `json:"weights,omitempty"`
	// MaxBody is the greatest body that is read for its prompt, in bytes. A longer
	// one is passed on as it comes and counted, and nothing is known of its prompt.
	// 0 means 32 MiB.
	MaxBody int64 `json:"max_body,omitempty"`
	// MaxBodies bounds the bodies that this policy holds at once, in bytes. Each is
	// held until its request has ended; beyond that they are passed on as longer
	// ones are. 0 means 1 GiB.
	MaxBodies int64 `json:"max_bodies,omitempty"`

	state   *state
	key     string // of state, "" if there is none
	bodies  budget
	decoder *contentcoding.Decoder
	own     *reverseproxy.HTTPTransport // made here, so nobody else closes its connections
}

// Strategy names a strategy and its options.
type Strategy struct {
	// Name is one of least_work, cache_aware, pipeline, consistent_hash, least_load,
	// power_of_two, round_robin and random. "" means least_work.
	Name string `json:"name,omitempty"`
	// Options are fields of the strategy's Config in snake case ("miss_weight").
	// Durations are Caddy's: "5m", or nanoseconds.
	Options map[string]json.RawMessage `json:"options,omitempty"`
}

// CaddyModule names the module.
func (*Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.warmroute",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision joins the state that policies of the same Strategy share, including
// those of the configuration before a reload: learned prompts and requests in
// flight.
func (p *Policy) Provision(ctx caddy.Context) error {
	if p.MaxBody == 0 {
		p.MaxBody = DefaultMaxBody
	}
	if p.MaxBodies == 0 {
		p.MaxBodies = DefaultMaxBodies
	}
	if p.MaxBody < 0 || p.MaxBodies < 0 {
		return fmt.Errorf("max_body, max_bodies: less than 0")
	}
	for id, w := range p.Weights {
		if !validWeight(w) {
			return fmt.Errorf("weights: %s: %v is not a number above 0 and up to 1e6", id, w)
		}
	}
	if p.Strategy.Name == "" {
		p.Strategy.Name = DefaultStrategy
	}
	var err error
	if p.decoder, err = contentcoding.New(contentcoding.Config{MaxBytes: p.MaxBody}); err != nil {
		return err
	}
	p.bodies.free.Store(p.MaxBodies)
	if err := p.watch(ctx); err != nil {
		return err
	}
	key, err := json.Marshal(p.Strategy)
	if err != nil {
		return fmt.Errorf("strategy: %w", err)
	}
	v, _, err := states.LoadOrNew(string(key), func() (caddy.Destructor, error) { return newState(p.Strategy) })
	if err != nil {
		return fmt.Errorf("strategy: %w", err)
	}
	p.key, p.state = string(key), v.(*state)
	return nil
}

// watch wraps the transport of this policy's reverse_proxy, which sees the end of
// each attempt. The policy is loaded after the transport, and before
// reverse_proxy uses it.
func (p *Policy) watch(ctx caddy.Context) error {
	var h *reverseproxy.Handler
	for _, m := range ctx.Modules() {
		if found, ok := m.(*reverseproxy.Handler); ok {
			h = found
		}
	}
	if h == nil {
		return fmt.Errorf("warmroute is a policy of reverse_proxy alone")
	}
	if h.Transport == nil {
		p.own = new(reverseproxy.HTTPTransport)
		if err := p.own.Provision(ctx); err != nil {
			return fmt.Errorf("transport: %w", err)
		}
		h.Transport = p.own
	}
	t, ok := h.Transport.(*reverseproxy.HTTPTransport)
	if !ok {
		return fmt.Errorf("transport: %T is not the one that speaks HTTP", h.Transport)
	}
	h.Transport = transport{HTTPTransport: t}
	return nil
}

// Cleanup leaves the shared state. The requests in flight keep it.
func (p *Policy) Cleanup() error {
	var err error
	if p.own != nil {
		err = p.own.Cleanup()
	}
	if p.key != "" {
		if _, e := states.Delete(p.key); err == nil {
			err = e
		}
		p.key = ""
	}
	return err
}

// Select chooses for a first attempt and, called again with the same request, for
// later ones: then it excludes the upstreams that were tried, as long as there is
// another.
func (p *Policy) Select(pool reverseproxy.UpstreamPool, r *http.Request, _ http.ResponseWriter) *reverseproxy.Upstream {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = p.begin(r)
	}
	x.rewind(r)
	u := x.route(r.Context(), pool)
	if u == nil || x.lease == nil {
		return u
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		d := x.lease.Decision()
		repl.Set("http.reverse_proxy.warmroute.reason", string(d.Reason))
		repl.Set("http.reverse_proxy.warmroute.cached", d.Cached)
		repl.Set("http.reverse_proxy.warmroute.length", d.Length)
	}
	return u
}

// UnmarshalCaddyfile reads
//
//	lb_policy warmroute [<strategy>] {
//		strategy   <name> {
//			<option> <value>
//		}
//		weight     <upstream> <number>
//		max_body   <size>
//		max_bodies <size>
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the policy's name
	if d.NextArg() {
		p.Strategy.Name = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		key := d.Val()
		args := d.RemainingArgs()
		switch {
		case key == "strategy" && len(args) == 1:
			if p.Strategy.Name != "" {
				return d.Err("the strategy is named twice")
			}
			p.Strategy.Name = args[0]
			if err := p.Strategy.options(d); err != nil {
				return err
			}
		case key == "weight" && len(args) == 2:
			w, err := strconv.ParseFloat(args[1], 64)
			if err != nil || !validWeight(w) {
				return d.Errf("weights: %s: %s is not a number above 0 and up to 1e6", args[0], args[1])
			}
			if p.Weights == nil {
				p.Weights = make(map[string]float64)
			}
			p.Weights[args[0]] = w
		case (key == "max_body" || key == "max_bodies") && len(args) == 1:
			n, err := humanize.ParseBytes(args[0])
			if err != nil || n == 0 || n > 1<<62 {
				return d.Errf("%s: %q is not a size", key, args[0])
			}
			if key == "max_body" {
				p.MaxBody = int64(n)
			} else {
				p.MaxBodies = int64(n)
			}
		case key == "strategy" || key == "weight" || key == "max_body" || key == "max_bodies":
			return d.ArgErr()
		default:
			return d.Errf("unknown subdirective %q", key)
		}
	}
	return nil
}

func validWeight(w float64) bool { return w > 0 && w <= 1e6 }

// options reads the block below a strategy's name.
func (s *Strategy) options(d *caddyfile.Dispenser) error {
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		key := d.Val()
		var value string
		if !d.AllArgs(&value) {
			return d.ArgErr()
		}
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(value)
		}
		if s.Options == nil {
			s.Options = make(map[string]json.RawMessage)
		}
		if _, twice := s.Options[key]; twice {
			return d.Errf("%s is set twice", key)
		}
		s.Options[key] = raw
	}
	return nil
}

var (
	_ caddy.Provisioner     = (*Policy)(nil)
	_ caddy.CleanerUpper    = (*Policy)(nil)
	_ caddyfile.Unmarshaler = (*Policy)(nil)
	_ reverseproxy.Selector = (*Policy)(nil)
	_ router.Fleet          = (*fleet)(nil)
)
