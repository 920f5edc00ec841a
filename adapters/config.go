package adapters

import (
	"cmp"
	"math"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
)

// The bounds of the memory. Names come from requests and pages.
const (
	// MaxName is the length of an adapter's name, in bytes, beyond which it is not followed.
	MaxName = 256
	// MaxSlots bounds the slots of one target.
	MaxSlots = 1024

	maxTargets = 4096 // with none in flight beyond that
	maxPending = 64   // adapters of one target that requests wait for
)

// Config is how the model works. The zero Config is the documented default.
type Config struct {
	// Slots is the number of adapters that a target keeps, until its page reports it or more are seen in use at
	// once. 0 means 4. At most MaxSlots.
	Slots int
	// LoadTokens is the cost of a load in tokens that wait for prefill, until three first uses have been timed. 0
	// means 4,096.
	LoadTokens float64
	// MaxNames bounds the adapters that are remembered while no target has them; the one used least recently is
	// forgotten first. 0 means 4,096.
	MaxNames int
	// Share is this gateway's part in a fleet of gateways: adapters that the others used count, too. nil: nothing is
	// shared.
	Share router.Peers
	// Now is the clock; nil means time.Now. It is safe for concurrent use.
	Now func() time.Time
}

// WithDefaults returns c with the default in place of each field that is zero and has one.
func (c Config) WithDefaults() Config {
	c.Slots = cmp.Or(c.Slots, 4)
	c.LoadTokens = cmp.Or(c.LoadTokens, 4096)
	c.MaxNames = cmp.Or(c.MaxNames, 4096)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c *Config) check() error {
	bad := configerr.List{Package: "adapters"}
	bad.Check(c.Slots > 0 && c.Slots <= MaxSlots, "Slots", c.Slots, "1 to 1024")
	bad.Check(c.LoadTokens > 0 && c.LoadTokens <= math.MaxFloat32, "LoadTokens", c.LoadTokens, "a positive number")
	bad.Check(c.MaxNames > 0, "MaxNames", c.MaxNames, "1 or more")
	return bad.Err()
}
