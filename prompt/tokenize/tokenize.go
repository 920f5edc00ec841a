// Package tokenize asks the engines for the token ids of prompts, for gateways
// that have no tokenizer of their own and may do I/O before they route.
//
// It posts to /tokenize, which vLLM and, from 0.5.23 on, SGLang have for chats and texts; older versions of
// SGLang refuse chats, and are then not asked for a time. SGLang's chat completions ignore chat_template,
// add_special_tokens and an add_generation_prompt of false, which its /tokenize reads: its ids of such requests are
// wrong until the first reply contradicts them. It
// is exact or silent: a prompt that this route would not render as the engine renders the
// request itself (images, unknown members, other APIs) is not asked for, and a failure
// is counted, reported through [Trace], and costs a router nothing but the
// ids: it then routes by text.
package tokenize

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/rendezvous"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt/tokenmemo"
)

// Config is the configuration of a Client. Targets is needed; every other zero value
// is the documented default.
type Config struct {
	// Targets returns the base URLs, "http://host:port", of the engines that may be
	// asked now: those that are ready, of one model and one chat template. It is
	// called for each prompt and must be safe for concurrent use.
	Targets func() []string
	// Memo answers prompts that were asked for before, and learns from every answer. nil: a new
	// one of the default size.
	Memo *tokenmemo.Memo
	// Egress says which addresses may be connected to.
	Egress egress.Policy
	// TLS is for connections to targets with https addresses; nil means the defaults of crypto/tls. It is copied.
	TLS *tls.Config

	// Timeout bounds all that one prompt may cost, waiting for a place included; 0
	// means 1 s.
	Timeout time.Duration
	// Concurrent is the number of prompts that are asked for at once; 0 means 64.
	Concurrent int
	// MaxBody is the greatest body in bytes that is sent, MaxReply the greatest that
	// is read; 0 means 8 MiB and 32 MiB.
	MaxBody, MaxReply int
	// Memory has the bytes of the questions and of the answers that are read. If it has no more, there are no ids, and the
	// error is ErrBusy. nil: Concurrent, MaxBody and MaxReply alone bound them.
	Memory *membudget.Account
	// MinBackoff and MaxBackoff bound the time in which an engine that failed is not
	// asked; it doubles with each further failure. 0 means 1 s and 1 minute.
	MinBackoff, MaxBackoff time.Duration

	// Trace has the hooks.
	Trace Trace
}

// WithDefaults returns c with the default in place of each zero field that has one, but for Memo.
func (c Config) WithDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.Concurrent = cmp.Or(c.Concurrent, 64)
	c.MaxBody = cmp.Or(c.MaxBody, 8<<20)
	c.MaxReply = cmp.Or(c.MaxReply, 32<<20)
	c.MinBackoff = cmp.Or(c.MinBackoff, time.Second)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, max(time.Minute, c.MinBackoff))
	return c
}

func (c Config) validate() error {
	bad := configerr.List{Package: "tokenize"}
	bad.Check(c.Targets != nil, "Targets", nil, "given")
	if err := c.Egress.Validate(); err != nil {
		bad.Add(&router.ConfigError{Field: "Egress", Value: c.Egress, Err: err})
	}
	for _, f := range []struct {
		name string
		v    time.Duration
	}{{"Timeout", c.Timeout}, {"MinBackoff", c.MinBackoff}, {"MaxBackoff", c.MaxBackoff}} {
		bad.Check(f.v >= 0, f.name, f.v, "0 or more")
	}
	least := c.WithDefaults().MinBackoff
	bad.Check(c.MaxBackoff == 0 || c.MaxBackoff >= least,
		"MaxBackoff", c.MaxBackoff, "at least MinBackoff, "+least.String())
	for _, f := range []struct {
		name   string
		v, top int
	}{{"Concurrent", c.Concurrent, 1 << 16}, {"MaxBody", c.MaxBody, 1 << 30}, {"MaxReply", c.MaxReply, 1 << 30}} {
		bad.Check(f.v >= 0 && f.v <= f.top, f.name, f.v, fmt.Sprintf("between 0 and %d", f.top))
	}
	return bad.Err()
}

// Trace has hooks, each of which may be nil. They are called by Tokens and
// Reported, which wait for them, and must be safe for concurrent use.
type Trace struct {
	// Changed is called once per change: an engine no longer gives ids, because of err,
	// or with a nil err it does again. kind is "chat" or "completion".
	Changed func(target, kind string, err error)
	// Contradicted is called when an engine counted other tokens than there were ids.
	Contradicted func(given, counted int)
}

// Why there are no ids. Errors of Tokens are one of these or wrap one of them.
var (
	// ErrNotExact: /tokenize would not give the ids that the engine will use.
	ErrNotExact = errors.New("tokenize: ids of this request are not known exactly")
	// ErrContradicted: lately an engine counted other tokens than it had given for
	// a request like this one.
	ErrContradicted = errors.New("tokenize: ids of such requests were wrong")
	// ErrTooLarge: the body is longer than MaxBody.
	ErrTooLarge = errors.New("tokenize: the body is too large")
	// ErrBusy: Concurrent others were being asked for, for all of Timeout, or there is no Memory.
	ErrBusy = errors.New("tokenize: too many prompts at once")
	// ErrNoTarget: there is no engine to ask, or each failed lately.
	// It is router.ErrNoTarget too.
	ErrNoTarget = fmt.Errorf("tokenize: no engine to ask: %w", router.ErrNoTarget)
	// ErrRefused: the engine refused the request.
	ErrRefused = errors.New("tokenize: refused")
	// ErrFailed: the engine could not be reached, did not answer in time, with an
	// error of its own, or with something else than ids.
	ErrFailed = errors.New("tokenize: failed")
)

// Stats are the counts of a Client. Each prompt is in one of the first nine.
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
	Canceled     uint64 // their context ended

	// Failures counts the questions that engines failed to answer; a prompt may see two.
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

	mu      sync.Mutex
	sources map[sourceKey]*source

	n struct {
		asked, remembered, notExact, contradicted, tooLarge, busy atomic.Uint64
		noTarget, refused, failed, canceled, failures, mismatches atomic.Uint64
	}
}

// New returns a Client. A bad value is a *router.ConfigError that names the field; several are joined.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	if cfg.Memo == nil {
		var err error
		if cfg.Memo, err = tokenmemo.New(tokenmemo.Config{}); err != nil {
			return nil, err
		}
	}
	return &Client{
		cfg: cfg, slot: make(chan struct{}, cfg.Concurrent), sources: make(map[sourceKey]*source),
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            cfg.Egress.Dialer().DialContext,
				TLSClientConfig:        cfg.TLS.Clone(),
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
	if len(body) > c.cfg.MaxBody {
		c.n.tooLarge.Add(1)
		return nil, ErrTooLarge
	}
	key, ok := tokenmemo.NewKey(path, body)
	if !ok {
		c.n.notExact.Add(1)
		return nil, ErrNotExact
	}
	return c.TokensOf(ctx, key, h, body)
}

// TokensOf is Tokens for those who have the body's key. The ids of each engine are remembered and believed apart
// ([tokenmemo.Key.Of]), and a conversation's prompts are asked of the same engine as long as that can be.
func (c *Client) TokensOf(ctx context.Context, key tokenmemo.Key, h http.Header, body []byte) ([]uint32, error) {
	if len(body) > c.cfg.MaxBody {
		c.n.tooLarge.Add(1)
		return nil, ErrTooLarge
	}
	if !key.Plain {
		c.n.notExact.Add(1)
		return nil, ErrNotExact
	}
	targets := c.believed(key, c.cfg.Targets())
	if targets.order == nil && targets.suspects > 0 {
		c.n.contradicted.Add(1)
		return nil, ErrContradicted
	}
	for _, t := range targets.order[:min(attempts, len(targets.order))] {
		if ids, whole := c.cfg.Memo.Tokens(key.Of(t)); whole {
			c.n.remembered.Add(1)
			return ids, nil
		}
	}
	if len(targets.all) == 0 {
		if ids, whole := c.cfg.Memo.Tokens(key); whole {
			c.n.remembered.Add(1)
			return ids, nil
		}
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
	hold := c.cfg.Memory.Hold()
	defer hold.Release()
	if err := hold.Add(int64(len(body)) + 256); err != nil {
		c.n.busy.Add(1)
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	b, err := question(key.Chat, body)
	if err != nil {
		c.n.notExact.Add(1)
		return nil, ErrNotExact
	}
	ids, source, err := c.ask(ctx, outer, key.Chat, targets, h, b)
	switch {
	case err == nil:
		c.n.asked.Add(1)
		key = key.Of(source)
		c.cfg.Memo.Learn(key, ids, nil)
		if c.cfg.Memo.Suspect(key) { // the engine contradicts itself
			return nil, ErrContradicted
		}
	case outer.Err() != nil:
		c.n.canceled.Add(1)
	case errors.Is(err, ErrBusy):
		c.n.busy.Add(1)
	case errors.Is(err, ErrNoTarget):
		c.n.noTarget.Add(1)
	case errors.Is(err, ErrRefused):
		c.n.refused.Add(1)
	default:
		c.n.failed.Add(1)
	}
	return ids, err
}

// candidates are the engines that may be asked for one prompt.
type candidates struct {
	all      []string
	order    []string // those that are believed, the one to ask first before the others
	suspects int      // those that are not
}

// believed orders the targets for a conversation: each by its own draw, so that they share the conversations evenly
// and one that leaves moves no others.
func (c *Client) believed(key tokenmemo.Key, targets []string) candidates {
	to := candidates{all: targets}
	type drawn struct {
		target string
		draw   uint64
	}
	var all []drawn
	conversation := key.Conversation()
	for _, t := range targets {
		if c.cfg.Memo.Suspect(key.Of(t)) {
			to.suspects++
			continue
		}
		all = append(all, drawn{t, rendezvous.Place(t, conversation)})
	}
	slices.SortFunc(all, func(a, b drawn) int {
		return cmp.Or(cmp.Compare(a.draw, b.draw), strings.Compare(a.target, b.target))
	})
	for _, d := range all {
		to.order = append(to.order, d.target)
	}
	return to
}

// attempts is how many engines are asked for one prompt.
const attempts = 2

// ask returns the ids and the engine that gave them.
func (c *Client) ask(
	ctx, outer context.Context, chat bool, to candidates, h http.Header, body []byte,
) (ids []uint32, source string, err error) {
	kind := "completion"
	if chat {
		kind = "chat"
	}
	err = ErrNoTarget
	asked := 0
	for _, t := range to.order {
		if asked == attempts || ctx.Err() != nil {
			break
		}
		k := sourceKey{t, kind}
		if !c.begin(k, to.all) {
			continue
		}
		asked++
		ids, err = c.post(ctx, k.target, h, body)
		c.settle(outer, k, err)
		if err == nil || errors.Is(err, ErrRefused) {
			return ids, t, err
		}
	}
	return nil, "", err
}

// Reported takes the number of tokens that the engine counted in the prompt for which Tokens
// gave ids. It is ReportedBy for those who do not know which engine it was: another number means that the engine that
// gave the ids is not believed for requests like this one, for a while.
func (c *Client) Reported(key tokenmemo.Key, given, counted int) {
	c.ReportedBy("", key, given, counted)
}

// ReportedBy takes the number of tokens that an engine, by its URL as Targets has it, counted in the prompt for which
// Tokens gave ids. Another number means that /tokenize does not render as the engine does. If it is the engine that
// gave the ids, or the second of the others, ids of that source are not given for such requests for a while;
// one other engine's count may itself be wrong.
func (c *Client) ReportedBy(target string, key tokenmemo.Key, given, counted int) {
	if given == counted || counted <= 0 {
		return
	}
	c.n.mismatches.Add(1)
	c.cfg.Memo.Counted(key, target, given, counted)
	if c.cfg.Trace.Contradicted != nil {
		c.cfg.Trace.Contradicted(given, counted)
	}
}

// Stats returns the counts so far.
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
