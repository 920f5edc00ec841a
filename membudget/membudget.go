// Package membudget bounds the memory that clients and engines make a process hold, by requests, replies and events.
// A [Budget] is one limit in bytes, and each kind of data has an [Account] of it with a limit of its own. A caller that
// keeps foreign bytes reserves them before they are allocated and releases them when they are dropped. If an account
// has no more, or all together have no more, Reserve fails with an [*Error] that names the account, and the host sheds
// the request.
//
// Accounts count the bytes that their users reserve. The memory of the process is larger, by the garbage that the
// collector has not freed yet, the stacks of goroutines, the buffers of connections, and the data of strategies. Set
// the soft limit of the Go runtime (GOMEMLIMIT, debug.SetMemoryLimit) somewhat above a Budget's limit and these
// together, so that garbage is collected in time.
package membudget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/configerr"
)

// DefaultLimit is the limit of the zero Config, in bytes.
const DefaultLimit = 2 << 30

// The accounts that the packages of this module and its hosts know. A host may have others.
const (
	// Bodies are the bodies of requests as they come, and decoded.
	Bodies = "bodies"
	// Prompts are the texts and the token ids of prompts, and the scratch of reading them.
	Prompts = "prompts"
	// Replies are the parts of replies that are kept to learn from them.
	Replies = "replies"
	// Events are messages of KV events, live and replayed, that wait to be applied.
	Events = "events"
	// Tokens are the answers of engines that are asked for token ids, and the ids that are remembered.
	Tokens = "tokens"
	// Leases are the prompts of leases that callers of a sidecar hold.
	Leases = "leases"
)

// DefaultShares returns the shares of the zero Config: those of a gateway, which has no leases. They add up to 1, so
// that each account has its part whatever the others take. The map is the caller's.
func DefaultShares() map[string]float64 {
	return map[string]float64{Bodies: 0.35, Prompts: 0.25, Replies: 0.25, Events: 0.075, Tokens: 0.075}
}

// Config configures a Budget. Each zero field has a default.
type Config struct {
	// Limit bounds the bytes of all accounts together. 0 means DefaultLimit.
	Limit int64
	// Shares are the parts of Limit that accounts may take, by their names; each is above 0 and at most 1. If they add up
	// to more than 1, an account cannot count on its share. An account without a share may take all of Limit. nil means
	// DefaultShares.
	Shares map[string]float64
}

// WithDefaults returns c with the default in place of each field that is zero.
func (c Config) WithDefaults() Config {
	c.Limit = cmp.Or(c.Limit, DefaultLimit)
	if c.Shares == nil {
		c.Shares = DefaultShares()
	}
	return c
}

func (c Config) validate() error {
	bad := configerr.List{Package: "membudget"}
	bad.Check(c.Limit >= 0, "Limit", c.Limit, "at least 1, or 0 for the default")
	for name, s := range c.Shares {
		bad.Check(s > 0 && s <= 1, fmt.Sprintf("Shares[%q]", name), s, "above 0 and at most 1")
	}
	return bad.Err()
}

// of returns the limit of an account in bytes.
func (c *Config) of(name string) int64 {
	s, ok := c.Shares[name]
	if !ok {
		return c.Limit
	}
	return max(int64(s*float64(c.Limit)), 1)
}

// Budget is a limit in bytes and its accounts. A nil *Budget bounds nothing. It is safe for concurrent use. Make one
// with New.
type Budget struct {
	limit, used, peak atomic.Int64

	waiting atomic.Int32
	mu      sync.Mutex
	config  Config
	all     []*Account
	freed   chan struct{} // closed when bytes are released; nil: nobody waits for that
}

// New returns a Budget with the accounts of c.Shares. The error is a *router.ConfigError for each field with a bad
// value, joined.
func New(c Config) (*Budget, error) {
	b := new(Budget)
	if err := b.Set(c); err != nil {
		return nil, err
	}
	for name := range b.config.Shares {
		b.Account(name)
	}
	return b, nil
}

// Set puts other limits in place. An account that has more than its new limit keeps it and gets no more until it is
// below that. The error is New's; nothing has changed then.
func (b *Budget) Set(c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	c = c.WithDefaults()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.config = c
	b.limit.Store(c.Limit)
	for _, a := range b.all {
		a.limit.Store(c.of(a.name))
	}
	b.wake()
	return nil
}

// Account returns the account of this name, and makes it if there is none. It is nil, which bounds nothing, if b is.
func (b *Budget) Account(name string) *Account {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.all { // they are few
		if a.name == name {
			return a
		}
	}
	a := &Account{budget: b, name: name}
	a.limit.Store(b.config.of(name))
	b.all = append(b.all, a)
	for i := len(b.all) - 1; i > 0 && b.all[i-1].name > name; i-- {
		b.all[i-1], b.all[i] = b.all[i], b.all[i-1]
	}
	return a
}

// Stats are the sizes of a Budget in bytes. Used is what accounts have at the moment, Peak the most that they had.
type Stats struct {
	Limit, Used, Peak int64
	// Accounts are in the order of their names.
	Accounts []AccountStats
}

// AccountStats are those of one account. Shed counts the reservations that failed, and those that had to wait.
type AccountStats struct {
	Name              string
	Limit, Used, Peak int64
	Shed              uint64
}

// Stats returns the sizes at the moment; the zero Stats for a nil Budget.
func (b *Budget) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{Limit: b.limit.Load(), Used: b.used.Load(), Peak: b.peak.Load()}
	for _, a := range b.all {
		s.Accounts = append(s.Accounts, AccountStats{
			Name: a.name, Limit: a.limit.Load(), Used: a.used.Load(), Peak: a.peak.Load(), Shed: a.shed.Load(),
		})
	}
	return s
}

// wake wakes those that wait for bytes. The caller holds mu.
func (b *Budget) wake() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// Account is the part of a Budget for one kind of data. A nil *Account bounds nothing and counts nothing. It is safe
// for concurrent use.
type Account struct {
	budget            *Budget
	name              string
	limit, used, peak atomic.Int64
	shed              atomic.Uint64
}

// Name returns the account's name, "" of a nil Account.
func (a *Account) Name() string {
	if a == nil {
		return ""
	}
	return a.name
}

// Limit returns the most bytes that a may have, math.MaxInt64 if a is nil.
func (a *Account) Limit() int64 {
	if a == nil {
		return 1<<63 - 1
	}
	return min(a.limit.Load(), a.budget.limit.Load())
}

// Used returns the bytes that a has at the moment.
func (a *Account) Used() int64 {
	if a == nil {
		return 0
	}
	return a.used.Load()
}

// Reserve takes n bytes, all or none of them. The error is an *Error. An n of 0 or less takes nothing.
func (a *Account) Reserve(n int64) error {
	if a.take(n) {
		return nil
	}
	a.shed.Add(1)
	return a.refuses(n)
}

// Release brings back n bytes that Reserve or Wait took.
func (a *Account) Release(n int64) {
	if a == nil || n <= 0 {
		return
	}
	a.used.Add(-n)
	b := a.budget
	b.used.Add(-n)
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		b.wake()
		b.mu.Unlock()
	}
}

// Wait is Reserve that waits for bytes until ctx ends, and then returns its cause. It returns an *Error at once if n
// bytes are more than a may ever have. It is for the reader of a stream, which reads no further meanwhile.
func (a *Account) Wait(ctx context.Context, n int64) error {
	if a.take(n) {
		return nil
	}
	a.shed.Add(1)
	b := a.budget
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	for {
		b.mu.Lock()
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		if a.take(n) {
			return nil
		}
		if n > a.Limit() {
			return a.refuses(n)
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take is Reserve without a count of those that fail.
func (a *Account) take(n int64) bool {
	if a == nil || n <= 0 {
		return true
	}
	used, ok := add(&a.used, n, a.limit.Load())
	if !ok {
		return false
	}
	all, ok := add(&a.budget.used, n, a.budget.limit.Load())
	if !ok {
		a.used.Add(-n)
		return false
	}
	raise(&a.peak, used)
	raise(&a.budget.peak, all)
	return true
}

// add adds n to v, unless it would exceed limit.
func add(v *atomic.Int64, n, limit int64) (int64, bool) {
	for {
		was := v.Load()
		if n > limit-was {
			return 0, false
		}
		if v.CompareAndSwap(was, was+n) {
			return was + n, true
		}
	}
}

func raise(peak *atomic.Int64, v int64) {
	for {
		was := peak.Load()
		if v <= was || peak.CompareAndSwap(was, v) {
			return
		}
	}
}

func (a *Account) refuses(n int64) error {
	limit := a.Limit()
	return &Error{Account: a.name, Bytes: n, Limit: limit, Never: n > limit}
}

// ErrShed is the error that every *Error is, for errors.Is.
var ErrShed = errors.New("membudget: an account has no more memory")

// Error is the error of a reservation that an account had no bytes for. It is returned by pointer.
type Error struct {
	// Account is the account's name.
	Account string
	// Bytes were asked for, Limit is the most that the account may have.
	Bytes, Limit int64
	// Never reports that Bytes are more than Limit, so that it makes no sense to come again.
	Never bool
}

// Error names the account and its limit. It has nothing of a client's.
func (e *Error) Error() string {
	if e.Never {
		return fmt.Sprintf("membudget: %d bytes are more than the account %q may have, %d", e.Bytes, e.Account, e.Limit)
	}
	return fmt.Sprintf("membudget: the account %q has no %d bytes left of its %d", e.Account, e.Bytes, e.Limit)
}

// Is reports whether target is ErrShed.
func (e *Error) Is(target error) bool { return target == ErrShed }

// StatusCode returns the HTTP status of a request that is shed: 413 if it can never fit, 503 otherwise.
func (e *Error) StatusCode() int {
	if e.Never {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusServiceUnavailable
}

// RetryAfter returns the time after which a client may come again; 0 if it makes no sense.
func (e *Error) RetryAfter() time.Duration {
	if e.Never {
		return 0
	}
	return time.Second
}

// Message returns a text for clients. It names the account and no sizes.
func (e *Error) Message() string {
	if e.Never {
		return "the request needs more memory for " + e.Account + " than the gateway has for all of them"
	}
	return "the gateway's memory for " + e.Account + " is in use; try again later"
}
