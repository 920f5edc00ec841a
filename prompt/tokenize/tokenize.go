// Package tokenize asks the engines for the token ids of prompts, for gateways
// that have no tokenizer of their own and may do I/O before they route.
//
// It posts to /tokenize, which vLLM has for chats and texts, SGLang for texts. It
// is exact or silent: what that route would not render as the engine renders the
// request itself (images, unknown members, other APIs) is not asked for, and what
// goes wrong is counted, told through [Trace], and costs a router nothing but the
// ids: it then routes by text.
package tokenize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/prompt"
)

// Config is what a Client is made of. Targets is needed; every other zero value
// is the documented default.
type Config struct {
	// Targets returns the base URLs, "http://host:port", of the engines that may be
	// asked now: those that are ready, of one model and one chat template. It is
	// called for each prompt and must be safe for concurrent use.
	Targets func() []string
	// Memo answers what was asked before, and learns from every answer. nil: a new
	// one of the default size.
	Memo *prompt.TokenMemo
	// Egress says which addresses may be connected to.
	Egress egress.Policy

	// Timeout bounds all that one prompt may cost, waiting for its turn included; 0
	// means 1 s.
	Timeout time.Duration
	// Concurrent is the number of prompts that are asked for at once; 0 means 64.
	Concurrent int
	// MaxBody is the greatest body in bytes that is sent, MaxReply the greatest that
	// is read; 0 means 8 MiB and 32 MiB.
	MaxBody, MaxReply int
	// MinBackoff and MaxBackoff bound the time in which an engine that failed is not
	// asked; it doubles with each further failure. 0 means 1 s and 1 minute.
	MinBackoff, MaxBackoff time.Duration

	// Trace is told what happens.
	Trace Trace
}

// Trace has hooks, each of which may be nil. They are called by Tokens and
// Reported, which wait for them, and must be safe for concurrent use.
type Trace struct {
	// Changed tells, once per change, that an engine no longer gives ids, and why,
	// or with a nil err that it does again. kind is "chat" or "completion".
	Changed func(target, kind string, err error)
	// Contradicted tells that an engine counted other tokens than it had given.
	Contradicted func(given, counted int)
}

// Why there are no ids. Errors of Tokens are one of these or wrap one of them.
var (
	// ErrNotExact: /tokenize would not give what the engine will use.
	ErrNotExact = errors.New("tokenize: ids of this request cannot be told exactly")
	// ErrContradicted: lately an engine counted other tokens than it had given for
	// a request like this one.
	ErrContradicted = errors.New("tokenize: ids of such requests were wrong")
	// ErrTooLarge: the body is longer than MaxBody.
	ErrTooLarge = errors.New("tokenize: the body is too large")
	// ErrBusy: Concurrent others were being asked for, for all of Timeout.
	ErrBusy = errors.New("tokenize: too many prompts at once")
	// ErrNoTarget: there is no engine to ask, or each failed lately.
	ErrNoTarget = errors.New("tokenize: no engine to ask")
	// ErrRefused: the engine refused the request.
	ErrRefused = errors.New("tokenize: refused")
	// ErrFailed: the engine could not be reached, did not answer in time, with an
	// error of its own, or with something else than ids.
	ErrFailed = errors.New("tokenize: failed")
)

// Stats is what a Client has counted. Each prompt is in one of the first nine.
type Stats struct {
	Asked        uint64 // got ids from an engine
	Remembered   uint64 // got them from the memo
	NotExact     uint64
	Contradicted uint64 // were not asked for because of ErrContradicted
	TooLarge     uint64
	Busy         uint64
	NoTarget     uint64
	Refused      uint64
	Failed       uint64
	Canceled     uint64 // whose context ended

	// Failures counts what engines failed to answer; a prompt may see two.
	Failures uint64
	// Mismatches counts the calls of Reported with another count.
	Mismatches uint64
	// Failing is the number of engines that are not asked for now.
	Failing int
}

// Client asks for ids. It is safe for concurrent use and starts no goroutine.
type Client struct {
	cfg  Config
	http *http.Client
	slot chan struct{}
	turn atomic.Uint64

	mu      sync.Mutex
	sources map[sourceKey]*source

	n struct {
		asked, remembered, notExact, contradicted, tooLarge, busy, noTarget, refused, failed, canceled, failures, mismatches atomic.Uint64
	}
}

// New returns a Client. A bad value is an error that names the field.
func New(cfg Config) (*Client, error) {
	var errs []error
	if cfg.Targets == nil {
		errs = append(errs, errors.New("tokenize: Targets is missing"))
	}
	if err := cfg.Egress.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("tokenize: Egress: %w", err))
	}
	for _, f := range []struct {
		name   string
		v      *time.Duration
		preset time.Duration
	}{{"Timeout", &cfg.Timeout, time.Second}, {"MinBackoff", &cfg.MinBackoff, time.Second}, {"MaxBackoff", &cfg.MaxBackoff, max(time.Minute, cfg.MinBackoff)}} {
		if *f.v < 0 {
			errs = append(errs, fmt.Errorf("tokenize: %s is %v; it must not be negative", f.name, *f.v))
		}
		*f.v = cmp.Or(*f.v, f.preset)
	}
	if cfg.MaxBackoff < cfg.MinBackoff {
		errs = append(errs, fmt.Errorf("tokenize: MaxBackoff is %v, less than MinBackoff, %v", cfg.MaxBackoff, cfg.MinBackoff))
	}
	for _, f := range []struct {
		name        string
		v           *int
		preset, top int
	}{{"Concurrent", &cfg.Concurrent, 64, 1 << 16}, {"MaxBody", &cfg.MaxBody, 8 << 20, 1 << 30}, {"MaxReply", &cfg.MaxReply, 32 << 20, 1 << 30}} {
		if *f.v < 0 || *f.v > f.top {
			errs = append(errs, fmt.Errorf("tokenize: %s is %d; it must be between 0 and %d", f.name, *f.v, f.top))
		}
		*f.v = cmp.Or(*f.v, f.preset)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Memo == nil {
		var err error
		if cfg.Memo, err = prompt.NewTokenMemo(prompt.TokenMemoConfig{}); err != nil {
			return nil, err
		}
	}
	return &Client{
		cfg: cfg, slot: make(chan struct{}, cfg.Concurrent), sources: make(map[sourceKey]*source),
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            cfg.Egress.Dialer().DialContext,
				DisableCompression:     true,
				MaxIdleConnsPerHost:    cfg.Concurrent,
				MaxResponseHeaderBytes: 64 << 10,
				IdleConnTimeout:        4 * time.Second, // the engines' HTTP server closes after 5 s
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Tokens returns the ids of the prompt of a request, of which path and body are
// as the engine will get them. Its Authorization and X-Api-Key headers, h may be
// nil, are sent along. The ids are shared and must not be changed. Without them
// there is an error that says why; it is no reason not to route the request.
func (c *Client) Tokens(ctx context.Context, path string, h http.Header, body []byte) ([]uint32, error) {
	key, ok := prompt.NewTokenKey(path, body)
	if !ok {
		c.n.notExact.Add(1)
		return nil, ErrNotExact
	}
	return c.TokensOf(ctx, key, h, body)
}

// TokensOf is Tokens for who has the body's key.
func (c *Client) TokensOf(ctx context.Context, key prompt.TokenKey, h http.Header, body []byte) ([]uint32, error) {
	if !key.Plain {
		c.n.notExact.Add(1)
		return nil, ErrNotExact
	}
	if c.cfg.Memo.Suspect(key) {
		c.n.contradicted.Add(1)
		return nil, ErrContradicted
	}
	if ids, whole := c.cfg.Memo.Tokens(key); whole {
		c.n.remembered.Add(1)
		return ids, nil
	}
	b, err := question(key.Chat, body)
	if err != nil {
		c.n.notExact.Add(1)
		return nil, ErrNotExact
	}
	if len(b) > c.cfg.MaxBody {
		c.n.tooLarge.Add(1)
		return nil, ErrTooLarge
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	select {
	case c.slot <- struct{}{}:
		defer func() { <-c.slot }()
	case <-ctx.Done():
		if outer.Err() != nil {
			c.n.canceled.Add(1)
			return nil, outer.Err()
		}
		c.n.busy.Add(1)
		return nil, ErrBusy
	}
	ids, err := c.ask(ctx, outer, key.Chat, h, b)
	switch {
	case err == nil:
		c.n.asked.Add(1)
		c.cfg.Memo.Learn(key, ids, nil)
		if c.cfg.Memo.Suspect(key) { // the engines do not agree
			return nil, ErrContradicted
		}
	case outer.Err() != nil:
		c.n.canceled.Add(1)
	case errors.Is(err, ErrNoTarget):
		c.n.noTarget.Add(1)
	case errors.Is(err, ErrRefused):
		c.n.refused.Add(1)
	default:
		c.n.failed.Add(1)
	}
	return ids, err
}

// attempts is how many engines are asked for one prompt.
const attempts = 2

func (c *Client) ask(ctx, outer context.Context, chat bool, h http.Header, body []byte) ([]uint32, error) {
	targets := c.cfg.Targets()
	if len(targets) == 0 {
		return nil, ErrNoTarget
	}
	kind := "completion"
	if chat {
		kind = "chat"
	}
	first := int(c.turn.Add(1) % uint64(len(targets)))
	err := error(ErrNoTarget)
	for i, asked := 0, 0; i < len(targets) && asked < attempts && ctx.Err() == nil; i++ {
		k := sourceKey{targets[(first+i)%len(targets)], kind}
		if !c.begin(k, targets) {
			continue
		}
		asked++
		var ids []uint32
		ids, err = c.post(ctx, k.target, h, body)
		c.settle(outer, k, err)
		if err == nil || errors.Is(err, ErrRefused) {
			return ids, err
		}
	}
	return nil, err
}

// Reported says how many tokens the engine counted in the prompt for which Tokens
// gave ids. Another number means that /tokenize does not render as the engine
// does, so ids of such requests are not given for a while.
func (c *Client) Reported(key prompt.TokenKey, given, counted int) {
	if given == counted || counted <= 0 {
		return
	}
	c.n.mismatches.Add(1)
	c.cfg.Memo.Contradict(key)
	if c.cfg.Trace.Contradicted != nil {
		c.cfg.Trace.Contradicted(given, counted)
	}
}

// Stats returns what has been counted.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	failing := 0
	for _, s := range c.sources {
		if s.failing {
			failing++
		}
	}
	c.mu.Unlock()
	return Stats{
		Asked: c.n.asked.Load(), Remembered: c.n.remembered.Load(), NotExact: c.n.notExact.Load(),
		Contradicted: c.n.contradicted.Load(), TooLarge: c.n.tooLarge.Load(), Busy: c.n.busy.Load(),
		NoTarget: c.n.noTarget.Load(), Refused: c.n.refused.Load(), Failed: c.n.failed.Load(),
		Canceled: c.n.canceled.Load(), Failures: c.n.failures.Load(), Mismatches: c.n.mismatches.Load(),
		Failing: failing,
	}
}

// Close closes idle connections. The Client may be used on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func endpoint(target string) string { return strings.TrimSuffix(target, "/") + "/tokenize" }
