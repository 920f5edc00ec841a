package disagg

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/membudget"
)

// Protocol is the way in which engines hand a KV cache over.
type Protocol string

// The protocols.
const (
	// NIXL is vLLM's NixlConnector: the prefill engine computes one token, and its reply has the parameters
	// by which the decode engine fetches the blocks.
	NIXL Protocol = "nixl"
	// Stored is a store that both engines share: the prefill engine computes one token, and the
	// decode engine finds the blocks.
	Stored Protocol = "stored"
	// SGLang sends the same request to both at once. Its decode engines cannot prefill, so it
	// needs Config.Strict.
	SGLang Protocol = "sglang"
	// Sidecar is llm-d's: the decode target's sidecar does the protocol with the prefill target that HeaderPrefiller
	// names.
	Sidecar Protocol = "sidecar"
)

// Role is what a target is for.
type Role string

// The roles. The zero Role is Both.
const (
	Both    Role = "both"
	Prefill Role = "prefill"
	Decode  Role = "decode"
)

// Place is the use of a target, and the others that it can be used with.
type Place struct {
	Role Role // "" is Both
	// Connector and Zone have to be equal for two targets to hand over; "" is equal to "" alone.
	Connector, Zone string
	// BootstrapPort is the port at which an SGLang prefill engine hands over; 0 means 8998.
	BootstrapPort int
}

// Fits reports whether a prefill target at p can hand over to a decode target at d.
func (p Place) Fits(d Place) bool {
	return p.Role != Decode && p.Connector == d.Connector && p.Zone == d.Zone
}

// Skip says why the decode target computes the prompt too.
type Skip string

// The reasons, fit for a metric label.
const (
	SkipShort       Skip = "short"          // too little of it is not cached there
	SkipIdle        Skip = "idle"           // the decode target has nothing else to do
	SkipNoTarget    Skip = "no_target"      // no prefill target fits and is ready
	SkipFailed      Skip = "prefill_failed" // every attempt at prefill failed
	SkipNoParams    Skip = "no_params"      // the prefill engine handed nothing over
	SkipUnsupported Skip = "unsupported"    // the protocols have no such request
)

// Config configures a Splitter.
type Config struct {
	// Router chooses the decode targets, all but those for prefill alone. It is needed.
	Router *router.Router
	// Prefill chooses the prefill targets, those that fit; nil: Router.
	Prefill *router.Router
	// Memory has the bytes that are kept of the replies of prefill targets; nil: they are bounded for each reply alone.
	Memory *membudget.Account
	// Protocol hands over; "" means NIXL.
	Protocol Protocol
	// Place returns a target's place; nil: every one has the zero Place. It is called with
	// the fleet's lock held, as router.Router.Among has it.
	Place func(router.Target) Place
	// MinUncached is the least number of tokens not cached at the decode target for which
	// another one computes the prompt; four bytes of text are a token. 0 means 1024; less than 0: 0.
	MinUncached int
	// MinInFlight is the least number of requests, in flight and queued, that a decode target of known load has for that.
	// 0: any.
	MinInFlight int
	// Strict never has a prompt computed by a decode target, whatever the two bounds say, unless the prefill
	// engine has computed it and handed nothing over. A request that no prefill target serves fails.
	Strict bool
	// PrefillTimeout bounds one attempt at prefill; 0 means 2 min, less than 0: no bound.
	PrefillTimeout time.Duration
	// DecodeTimeout bounds the time until the first token at a decode target for which another has
	// computed the prompt; the request is then sent to another one. 0 means 30 s, less than 0: no bound.
	DecodeTimeout time.Duration
	// PinnedFor is how long a prefill engine keeps the blocks for the decode engine (vLLM's kv_lease_duration). Parameters
	// older than two thirds of that are not sent, because an engine that gets them too late reads whatever the blocks
	// hold then. 0 means 30 s.
	PinnedFor time.Duration
	// Transport sends to the prefill targets; nil means http.DefaultTransport.
	Transport http.RoundTripper
	// URL returns a target's base address; nil: its Ref if that is a *url.URL, else its ID.
	URL func(router.Target) (*url.URL, error)
	// Prepare changes a request to a prefill target before it is sent, as to set the target's key; nil: nothing.
	Prepare func(*http.Request, router.Target)
	// Rewrite returns the body for a prefill target, as with the target's name for the model. It does not change
	// body. nil: body.
	Rewrite func(ctx context.Context, t router.Target, body []byte) []byte
	// Trace has the hooks; any may be nil.
	Trace Trace
}

// Trace has hooks that a Splitter calls. They do not block.
type Trace struct {
	// Skipped is called with each decision for a decode target that computes the prompt too.
	Skipped func(context.Context, router.Decision, Skip)
	// Prefilled is called when a prefill target has computed a prompt: with both decisions, and the time.
	Prefilled func(ctx context.Context, prefill, decode router.Decision, took time.Duration)
	// PrefillFailed is called with each attempt at prefill that failed.
	PrefillFailed func(context.Context, router.Decision, router.Outcome)
	// Expired is called when parameters are dropped as too old; see Config.PinnedFor.
	Expired func(router.Decision)
	// Stranded is called when blocks were computed and not fetched, as far as is known.
	Stranded func(context.Context, router.Decision)
}

// WithDefaults returns c with the default in place of each field that is zero and has one.
func (c Config) WithDefaults() Config {
	if c.Prefill == nil {
		c.Prefill = c.Router
	}
	c.Protocol = cmp.Or(c.Protocol, NIXL)
	if c.Place == nil {
		c.Place = func(router.Target) Place { return Place{} }
	}
	c.MinUncached = cmp.Or(c.MinUncached, 1024)
	c.PrefillTimeout = cmp.Or(c.PrefillTimeout, 2*time.Minute)
	c.DecodeTimeout = cmp.Or(c.DecodeTimeout, 30*time.Second)
	c.PinnedFor = cmp.Or(c.PinnedFor, 30*time.Second)
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	if c.URL == nil {
		c.URL = baseOf
	}
	return c
}

func (c *Config) check() error {
	bad := configerr.List{Package: "disagg"}
	bad.Check(c.Router != nil, "Router", nil, "a Router")
	switch c.Protocol {
	case "", NIXL, Stored, Sidecar:
	case SGLang:
		bad.Check(c.Strict, "Strict", false, "true with SGLang: its decode engines cannot prefill")
	default:
		bad.Check(false, "Protocol", string(c.Protocol), `"nixl", "stored", "sglang" or "sidecar"`)
	}
	bad.Check(c.MinInFlight >= 0, "MinInFlight", c.MinInFlight, "0 or more")
	bad.Check(c.PinnedFor >= 0, "PinnedFor", c.PinnedFor, "0 or more")
	return bad.Err()
}

// baseOf returns the base URL of a target.
func baseOf(t router.Target) (*url.URL, error) {
	if u, ok := t.Ref.(*url.URL); ok {
		return u, nil
	}
	u, err := url.Parse(t.ID)
	if err != nil || u.Host == "" {
		return nil, errors.New("disagg: a target has no *url.URL as its Ref, and its ID is no URL")
	}
	return u, nil
}
