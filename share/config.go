package share

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"os"
	"time"

	"github.com/warmroute/router/internal/configerr"
)

// The defaults of Config.
const (
	DefaultSubject  = "warmroute"
	DefaultMaxMarks = 512 << 10
	DefaultInterval = 5 * time.Millisecond
	DefaultMaxLag   = 50 * time.Millisecond
)

// MinSecret is the least length of a Secret, MaxName the greatest of a Name, in bytes.
const (
	MinSecret = 16
	MaxName   = 64
)

// Config configures a Share. Bus and Secret are needed; the zero value of all else is the documented default.
type Config struct {
	// Bus carries the frames. The caller owns it.
	Bus Bus
	// Secret is the same on all gateways of the fleet, and known to nobody else: 16 bytes or more. The fingerprints
	// on the Bus are made with it, so that nobody can test them against guessed prompts.
	Secret string
	// Subject is the beginning of the subjects on the Bus, one for each fleet. "" means DefaultSubject. It has
	// letters, digits, hyphens and single dots.
	Subject string
	// Name names this gateway for people, in at most 64 bytes. "" means the host's name.
	Name string
	// MaxMarks bounds the fingerprints that are remembered, one for each KiB of text that was sent, of at most
	// 40 bytes each and 8 more for each further target. Over it those that were sent longest ago are dropped. 0 means
	// DefaultMaxMarks.
	MaxMarks int
	// Interval is the least time between two frames. Less is more exact and costs more frames. 0 means
	// DefaultInterval; at most 10 ms.
	Interval time.Duration
	// MaxLag is how late frames may be for the load to be shared. If they are later for a second, the load of
	// other gateways no longer counts, until they are not for a second. 0 means DefaultMaxLag.
	MaxLag time.Duration
	// NoCache and NoLoad leave one half out: what was sent where, and what is in flight there.
	NoCache, NoLoad bool
	// Now is the clock; nil means time.Now. It is safe for concurrent use.
	Now func() time.Time
	// Rand draws the number by which the others know this process. nil means crypto/rand; it is for simulations.
	Rand func() uint64
	// Trace is called about changes.
	Trace Trace
}

// Trace has the hooks that a Share calls. Each may be nil. They are called without a lock, one call at a time from
// each goroutine that saw the change, and should be quick.
type Trace struct {
	// LoadChanged reports that the load of other gateways no longer counts because the Bus is too slow, and that it
	// counts again. lag is the lag at that moment.
	LoadChanged func(shared bool, lag time.Duration)
	// Ignored reports a frame that was ignored: it has another version, or comes from a fleet with another secret
	// on the same subject. It is called once for each of the two.
	Ignored func(err error)
}

// WithDefaults returns c with the default in place of each field that is zero and has one.
func (c Config) WithDefaults() Config {
	c.Subject = cmp.Or(c.Subject, DefaultSubject)
	c.MaxMarks = cmp.Or(c.MaxMarks, DefaultMaxMarks)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.MaxLag = cmp.Or(c.MaxLag, DefaultMaxLag)
	if c.Name == "" {
		c.Name, _ = os.Hostname()
		c.Name = c.Name[:min(len(c.Name), MaxName)]
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// check returns a *router.ConfigError for each field that is not allowed, joined.
func (c *Config) check() error {
	bad := configerr.List{Package: "share"}
	bad.Check(c.Bus != nil, "Bus", nil, "not nil")
	bad.Check(len(c.Secret) >= MinSecret, "Secret", "(hidden)", "at least 16 bytes")
	bad.Check(ValidSubject(c.Subject), "Subject", c.Subject, "letters, digits and hyphens, with single dots between them")
	bad.Check(len(c.Name) <= MaxName, "Name", c.Name, "at most 64 bytes")
	bad.Check(c.MaxMarks > 0 && c.MaxMarks <= 1<<26, "MaxMarks", c.MaxMarks, "1 to 67,108,864")
	bad.Check(c.Interval > 0 && c.Interval <= 10*time.Millisecond, "Interval", c.Interval, "above 0 and at most 10ms")
	bad.Check(c.MaxLag > 0, "MaxLag", c.MaxLag, "above 0")
	return bad.Err()
}

// ValidSubject reports whether s is a Subject that is allowed: letters, digits, hyphens and underscores, with single
// dots between them, in at most 128 bytes.
func ValidSubject(s string) bool {
	if len(s) > 128 {
		return false
	}
	dot := true
	for _, c := range []byte(s) {
		switch {
		case c == '.':
			if dot {
				return false
			}
			dot = true
			continue
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
		dot = false
	}
	return !dot
}

// drawID returns a number for this process: 48 bits, not 0.
func (c *Config) drawID() uint64 {
	if c.Rand != nil {
		return max(c.Rand()>>16, 1)
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(binary.BigEndian.Uint64(b[:])>>16, 1)
}
