package sim

import (
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/bench/trace"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/share"
)

// Policy is a strategy by its name, and how a new one is made.
type Policy struct {
	Name string
	// About is its formula, defaults and source in a line or two.
	About string
	// New makes one for one gateway.
	New func(Env) (router.Strategy, error)
	// NoText says that it never looks at Prompt.Text, nor at Load.Prefill, which is
	// reckoned by it: no text is made then, which saves half of a run's time.
	NoText bool
	// Exact reports that the Policy reads Env.Index: the engines then publish
	// events, and prompts have token ids.
	Exact bool
}

// Env has the values that a Policy may use in addition to its calls.
type Env struct {
	// Rand is seeded; each gateway has its own.
	Rand func() uint64
	// Now is virtual time.
	Now func() time.Time
	// Calibration is the engines'. A rival may need a block size; the library's own
	// strategies do not use it.
	Calibration Calibration
	Replicas    int
	// Share is this gateway's part in the fleet of gateways, nil unless Config.Share is
	// on.
	Share *share.Share
	// Adapters returns the adapters that have requests in the batch of a replica, and those that have others, at this
	// instant: what vLLM's page says of them.
	Adapters func(id string) (running, waiting []string)
	// Index is this gateway's index of the engines' caches, from their own events;
	// nil unless the Policy is Exact.
	Index *kvindex.Index
}

// Config is one run. The zero Config, with a Workload and a Policy, is eight
// replicas of the default calibration behind one gateway, nothing scraped.
type Config struct {
	Workload *trace.Workload
	// Rate is the rate of Workload. It is only reported.
	Rate   float64
	Policy Policy
	Seed   uint64

	Replicas    int         // 0 means 8
	Calibration Calibration // the zero value means the first of Calibrations
	// Speeds of the replicas, 0.01 to 100; missing ones are 1. The gateways are not
	// notified: a strategy has to notice.
	Speeds []float64
	// Gateways share nothing, except by Share; each request comes to one of them at
	// random. 0 means 1.
	Gateways int
	// Share is what the gateways share.
	Share Sharing
	// Line is each gateway's waiting line; nil: requests wait in the engines alone.
	Line *admission.Config
	// Scrape is how often each gateway learns the queue depth of each engine; it
	// stays as it was in between. 0 means never.
	Scrape time.Duration
	// Split has prompts computed by some of the replicas; nil: each does both.
	Split *Split
	// Good reports whether an answer with these times counts for Result.Good; nil: none does. perToken is 0 if there is
	// one token.
	Good func(ttft, perToken float64) bool
	// Attempts is the greatest number of targets that one request is sent to. 0
	// means 3.
	Attempts int
	// Slots is how many LoRA adapters each replica keeps loaded; a further one is loaded within a step, which takes Load
	// longer, in place of the one that was used least recently and has no request in the batch. A request waits, and lets
	// others pass, while all slots have some. 0: adapters cost nothing.
	Slots int
	Load  Seconds
	// Events happen to replicas.
	Events []Event
	// KV is how the engines' events come to the gateways of a Policy that is Exact.
	KV KVEvents
	// Tokens gives each prompt token ids as well as text.
	Tokens bool
	// Requests keeps each request's time to first token in the Result.
	Requests bool

	single bool // engines take one step at a time: for tests
	verify func(*engine)
}

// Split is prefill and decode on different replicas, by the rule of package disagg: the one that decodes is chosen
// first, and then one that computes the prompt, if enough of it is not cached at the former. Simplifications: the
// blocks of a computed prompt can be evicted at once, transfers share no network, and nothing fails.
type Split struct {
	// Prefill is how many replicas compute prompts only; the others decode.
	Prefill int
	// MinUncached is the least number of tokens for which another replica computes the prompt.
	MinUncached int
	// Token is the time to hand over a token.
	Token Seconds
}

// Kind is a change of a replica.
type Kind uint8

// The kinds of events.
const (
	// Die: the requests in flight fail, the cache is lost, and further requests are
	// refused for Down (0: permanently). If `Tell` is set, the gateways are notified
	// of the lost cache when the replica returns.
	Die Kind = iota + 1
	// Slow: from the next step on the replica works at Speed.
	Slow
	// Join: one more replica, of Speed (0: 1). Replica is not used.
	Join
)

// Event is something that happens to the replica with index Replica.
type Event struct {
	At      time.Duration
	Kind    Kind
	Replica int
	Down    time.Duration
	Tell    bool
	Speed   float64
}

func (c *Config) setDefaults() error {
	if c.Workload == nil || c.Policy.New == nil {
		return fmt.Errorf("sim: Workload and Policy are needed")
	}
	def := func(v *int, n int) {
		if *v == 0 {
			*v = n
		}
	}
	def(&c.Replicas, 8)
	def(&c.Gateways, 1)
	def(&c.Attempts, 3)
	if c.Replicas < 1 || c.Replicas > 4096 || c.Gateways < 1 || c.Gateways > 256 || c.Attempts < 1 {
		return fmt.Errorf("sim: %d Replicas, %d Gateways, %d Attempts: out of range", c.Replicas, c.Gateways, c.Attempts)
	}
	if c.Calibration == (Calibration{}) {
		c.Calibration = Calibrations()[0]
	}
	if err := c.Calibration.Check(); err != nil {
		return err
	}
	for _, s := range c.Speeds {
		if !(s >= 0.01 && s <= 100) {
			return fmt.Errorf("sim: Speeds: %v is not one of 0.01 to 100", s)
		}
	}
	if c.Scrape < 0 || c.Scrape > 0 && c.Scrape < time.Millisecond {
		return fmt.Errorf("sim: Scrape: %v is less than a millisecond", c.Scrape)
	}
	if c.Share.Lag < 0 || c.Share.Lag > time.Hour || !(c.Share.Loss >= 0 && c.Share.Loss < 1) {
		return fmt.Errorf("sim: Share: a Lag of %v or a Loss of %v is out of range", c.Share.Lag, c.Share.Loss)
	}
	if c.Share.Every < 0 || c.Share.Every > time.Hour || c.Share.Paths && c.Share.Every < time.Millisecond {
		return fmt.Errorf("sim: Share: Every is %v", c.Share.Every)
	}
	if c.KV.Lag < 0 || c.KV.Lag > time.Hour || !(c.KV.Drop >= 0 && c.KV.Drop < 1) {
		return fmt.Errorf("sim: KV: a Lag of %v or a Drop of %v is out of range", c.KV.Lag, c.KV.Drop)
	}
	if s := c.Split; s != nil {
		switch {
		case s.Prefill < 1 || s.Prefill >= c.Replicas || s.MinUncached < 0 || !(s.Token >= 0 && s.Token < 1):
			return fmt.Errorf("sim: Split: out of range: %+v", *s)
		case c.Line != nil || len(c.Events) > 0:
			return fmt.Errorf("sim: Split: not with a Line or Events")
		}
	}
	n := c.Replicas
	for i, e := range c.Events {
		if e.Kind == Join {
			n++
		}
		bad := e.At < 0 || e.Down < 0 || e.Kind < Die || e.Kind > Join ||
			e.Kind != Join && (e.Replica < 0 || e.Replica >= n) ||
			e.Kind == Slow && !(e.Speed >= 0.01 && e.Speed <= 100) || e.Kind == Join && !(e.Speed >= 0 && e.Speed <= 100)
		if bad {
			return fmt.Errorf("sim: Events: number %d is out of range: %+v", i, e)
		}
	}
	return nil
}

func (c *Config) speed(i int) float64 {
	if i < len(c.Speeds) {
		return c.Speeds[i]
	}
	return 1
}
