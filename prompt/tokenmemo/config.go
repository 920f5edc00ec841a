package tokenmemo

import (
	"cmp"
	"time"

	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/membudget"
)

// Config is the configuration of a Memo. The zero Config is the
// documented default.
type Config struct {
	// MaxEntries bounds the prompts and beginnings that are kept, MaxBytes their
	// ids in bytes, 4 for each, and 128 for an entry. Those that were not used for longest
	// go first. 0 means 16,384 and 64 MiB.
	MaxEntries, MaxBytes int
	// Memory has the bytes of the ids in addition; nil: MaxBytes alone bounds them. If it has no more, those that were not
	// used for longest go.
	Memory *membudget.Account
	// MaxTail is the greatest number of tokens at the end of a prompt that may be
	// others when the conversation goes on, such as those that open the reply. With
	// more, the chat template rewrites earlier turns, and the memo learns nothing
	// from it. 0 means 64.
	MaxTail int
	// Quarantine is how long no ids of a source are believed for requests with a setting (model,
	// salt, tools, template and its arguments) under which it contradicted itself. 0 means
	// 10 minutes.
	Quarantine time.Duration
	// Contradicted is called, if it is not nil, when ids turn out to be others than
	// the memo has, or had given away. It is called without a lock.
	Contradicted func()
	// Now is the clock of Quarantine; nil means time.Now. It is safe for concurrent
	// use.
	Now func() time.Time
}

const (
	memoEntryBytes = 128
	maxQuarantined = 1024
	maxSources     = 16 // of one prompt or beginning
)

// WithDefaults returns c with the default in place of each zero field that has one.
func (c Config) WithDefaults() Config {
	c.MaxEntries = cmp.Or(c.MaxEntries, 16384)
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
	c.MaxTail = cmp.Or(c.MaxTail, 64)
	c.Quarantine = cmp.Or(c.Quarantine, 10*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	bad := configerr.List{Package: "tokenmemo"}
	bad.Check(c.MaxEntries >= 0, "MaxEntries", c.MaxEntries, "0 or more")
	bad.Check(c.MaxBytes >= 0, "MaxBytes", c.MaxBytes, "0 or more")
	bad.Check(c.MaxTail >= 0, "MaxTail", c.MaxTail, "0 or more")
	bad.Check(c.Quarantine >= 0, "Quarantine", c.Quarantine, "0 or more")
	return bad.Err()
}
