package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/prompt/tokenize"
)

// tokenSource finds the ids of prompts that come without.
type tokenSource struct {
	mode   string
	memo   *prompt.TokenMemo
	client *tokenize.Client // nil: only the memo

	given, whole, partial, none atomic.Int64
	miscounted                  atomic.Int64
	judged, tooMuch             atomic.Int64 // of partial ones
	reading                     atomic.Int64 // replies whose ids are collected
}

// maxReading bounds the replies whose ids are collected at once, each of which may
// hold prompt.DefaultTokenReply bytes. Of more nothing is learned.
const maxReading = 64

// newTokenSource returns the source for a mode that is not tokensHeader.
func newTokenSource(mode string, timeout time.Duration, view *loadview.View, log *slog.Logger) (*tokenSource, error) {
	memo, err := prompt.NewTokenMemo(prompt.TokenMemoConfig{Contradicted: func() {
		log.Warn("token ids contradict each other; those of such requests are left out for a while")
	}})
	if err != nil {
		return nil, err
	}
	t := &tokenSource{mode: mode, memo: memo}
	if mode == tokensTokenize {
		t.client, err = tokenize.New(tokenize.Config{
			Targets: func() []string { return ready(view) },
			Memo:    memo,
			Timeout: timeout,
			Trace: tokenize.Trace{Changed: func(target, kind string, err error) {
				if err != nil {
					log.Warn("no token ids: requests are routed by text", "target", target, "kind", kind, "err", err)
					return
				}
				log.Info("token ids again", "target", target, "kind", kind)
			}},
		})
	}
	return t, err
}

func ready(v *loadview.View) []string {
	var ids []string
	for _, s := range v.Snapshot() {
		if s.Target.State == router.Ready {
			ids = append(ids, s.Target.ID)
		}
	}
	return ids
}

// tokenUse is how one prompt got its ids.
type tokenUse struct {
	source  *tokenSource // nil: not at all, or the client gave them
	key     prompt.TokenKey
	keyed   bool
	partial bool // ids of the beginning alone
	ids     int
	reading bool // counted in source.reading
}

// fill gives p ids where it has none and they are known.
func (t *tokenSource) fill(ctx context.Context, r *http.Request, body []byte, p *router.Prompt) (u tokenUse) {
	if t == nil || len(body) == 0 || r.Header.Get("Content-Encoding") != "" {
		return u
	}
	if len(p.Tokens) > 0 {
		t.given.Add(1)
		return u
	}
	u.source = t
	u.key, u.keyed = prompt.NewTokenKey(r.URL.Path, body)
	whole := true
	switch {
	case t.client != nil && u.keyed:
		p.Tokens, _ = t.client.TokensOf(ctx, u.key, r.Header, body) // counted and told there
	case t.client != nil:
		p.Tokens, _ = t.client.Tokens(ctx, r.URL.Path, r.Header, nil) // counted
	case u.keyed:
		p.Tokens, whole = t.memo.Tokens(u.key)
	}
	u.ids = len(p.Tokens)
	switch {
	case u.ids == 0:
		t.none.Add(1)
	case whole:
		t.whole.Add(1)
	default:
		u.partial = true
		t.partial.Add(1)
	}
	return u
}

// reader returns what collects the ids of the reply, nil where none are asked for.
func (u *tokenUse) reader() *prompt.TokenReply {
	if u.source == nil || !u.keyed || !u.key.ReturnsIDs {
		return nil
	}
	if u.source.reading.Add(1) > maxReading {
		u.source.reading.Add(-1)
		return nil
	}
	u.reading = true
	return new(prompt.TokenReply)
}

// release ends what reader began.
func (u *tokenUse) release() {
	if u.reading {
		u.reading = false
		u.source.reading.Add(-1)
	}
}

// learn takes what a reply said.
func (u *tokenUse) learn(ids *prompt.TokenReply, d router.Decision, o *router.Outcome) {
	if u.source == nil {
		return
	}
	t := u.source
	if ids != nil && o.Err == nil {
		if prompt, output := ids.Tokens(); prompt != nil {
			t.memo.Learn(u.key, prompt, output)
		}
	}
	if o.PromptTokens <= 0 || u.ids == 0 {
		return
	}
	if !u.partial {
		if o.PromptTokens != u.ids {
			t.miscounted.Add(1)
			if t.client != nil {
				t.client.Reported(u.key, u.ids, o.PromptTokens)
			} else {
				t.memo.Contradict(u.key)
			}
		}
		return
	}
	if d.Unit == router.Tokens {
		t.judged.Add(1)
		if d.Cached > o.CachedTokens {
			t.tooMuch.Add(1)
		}
	}
	// The prediction was for the known beginning, so it is not comparable: the
	// strategy is not to judge it.
	o.PromptTokens = 0
}

// watch empties the memo whenever a target starts again, maybe with another
// tokenizer. It is called before p runs.
func (t *tokenSource) watch(p *precise) {
	forget := p.forget
	p.forget = func(id string) {
		t.memo.Forget()
		forget(id)
	}
}

func (t *tokenSource) close() {
	if t != nil && t.client != nil {
		t.client.Close()
	}
}

// tokenStats is what the page and the last log line say of it.
type tokenStats struct {
	Source string
	// Given counts the requests that came with ids, Whole and Partial those whose
	// ids, or the first of them, were found, None the others. Miscounted are those
	// of which the engine counted another number of tokens.
	Given, Whole, Partial, None, Miscounted int64
	// PartialJudged counts the replies to Partial ones, PartialTooMuch those of
	// them in which less was cached than predicted.
	PartialJudged, PartialTooMuch int64
	Memo                          prompt.TokenMemoStats
	Tokenize                      *tokenize.Stats `json:",omitempty"`
}

func (t *tokenSource) stats() *tokenStats {
	if t == nil {
		return nil
	}
	s := &tokenStats{
		Source: t.mode, Given: t.given.Load(), Whole: t.whole.Load(), Partial: t.partial.Load(), None: t.none.Load(),
		Miscounted: t.miscounted.Load(), PartialJudged: t.judged.Load(), PartialTooMuch: t.tooMuch.Load(), Memo: t.memo.Stats(),
	}
	if t.client != nil {
		c := t.client.Stats()
		s.Tokenize = &c
	}
	return s
}

// errNoPrecise: a flag was given that nothing would read.
var errNoPrecise = errors.New("-kv-events, -kv-topic and -tokens need -strategy precise_cache_aware")
