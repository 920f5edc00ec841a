package main

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt/tokenize"
	"github.com/warmroute/router/prompt/tokenmemo"
)

// tokenSource finds the ids of prompts that come without, for one route.
type tokenSource struct {
	settings file.TokenSource
	policy   egress.Policy
	memo     *tokenmemo.Memo
	client   *tokenize.Client      // nil: only the memo
	group    atomic.Pointer[group] // each asks as the first one did

	given, whole, partial, none atomic.Int64
	miscounted                  atomic.Int64
	judged, tooMuch             atomic.Int64 // of partial ones
	reading                     atomic.Int64 // replies of which ids are collected
	memory                      *membudget.Account
}

// group are the targets that are asked for ids. They know the model by one name,
// and take one key.
type group struct {
	target *config.Target // the name and the key
	ids    map[string]bool
}

// asks reports whether g and o ask by one name and with one key.
func (g *group) asks(o *group) bool {
	return g.target.Model == o.target.Model && sameKey(g.target.Header, o.target.Header)
}

// keyHeaders are the headers that package tokenize sends along.
var keyHeaders = []string{"Authorization", "X-Api-Key"}

func sameKey(a, b http.Header) bool {
	return !slices.ContainsFunc(keyHeaders, func(k string) bool { return a.Get(k) != b.Get(k) })
}

// maxReading bounds the replies of which ids are collected at once, each of at most
// tokenmemo.DefaultReply bytes. Nothing is learned of more.
const maxReading = 64

// newTokenSource returns the source for settings of another kind than
// file.TokensFromHeader. It needs a group before its first use.
func newTokenSource(
	c file.TokenSource, policy egress.Policy, secure *tls.Config, view *loadview.View, memory *membudget.Account,
	log *slog.Logger,
) (*tokenSource, error) {
	memo, err := tokenmemo.New(tokenmemo.Config{
		MaxEntries: c.MaxEntries, MaxBytes: c.MaxBytes, Memory: memory,
		Contradicted: func() {
			log.Warn("token ids contradict each other; those of such requests are left out for a while")
		},
	})
	if err != nil {
		return nil, err
	}
	t := &tokenSource{settings: c, policy: policy, memo: memo, memory: memory}
	if c.Kind == file.TokensFromTokenize {
		t.client, err = tokenize.New(tokenize.Config{
			Targets:    func() []string { return t.ready(view) },
			Memo:       memo,
			Memory:     memory,
			Egress:     policy,
			TLS:        secure,
			Timeout:    time.Duration(c.TimeoutSecs * float64(time.Second)),
			Concurrent: c.Concurrent,
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

// ready returns the addresses of the group's targets that are ready, ranks behind
// one address once. One that has another key by now, as in the moment of a reload,
// may be another server, which is not to see the group's.
func (t *tokenSource) ready(v *loadview.View) []string {
	g := t.group.Load()
	var bases []string
	for _, s := range v.Snapshot() {
		ref, ok := s.Target.Ref.(*config.Target)
		if !ok || s.Target.State != router.Ready || !g.ids[s.Target.ID] || !sameKey(ref.Header, g.target.Header) {
			continue
		}
		if b := ref.Base.String(); ref.Rank <= 0 || !slices.Contains(bases, b) {
			bases = append(bases, b)
		}
	}
	return bases
}

// tokenUse is how one prompt got its ids.
type tokenUse struct {
	source  *tokenSource // nil: not at all, or the client gave them
	key     tokenmemo.Key
	keyed   bool
	partial bool // ids of the beginning alone
	ids     int
	reading bool // counted in source.reading
}

// fill gives p, the prompt of x, ids if it has none and they are known.
func (t *tokenSource) fill(x *exchange, p *router.Prompt) (u tokenUse) {
	r, body := x.r, x.in.Bytes()
	if t == nil || len(body) == 0 {
		return u
	}
	if len(p.Tokens) > 0 {
		t.given.Add(1)
		return u
	}
	u.source = t
	u.key, u.keyed = tokenmemo.NewKey(r.URL.Path, body)
	whole := true
	switch {
	case t.client != nil && u.keyed:
		p.Tokens = t.ask(x, u.key)
	case t.client != nil:
		p.Tokens, _ = t.client.Tokens(r.Context(), r.URL.Path, r.Header, nil) // counted
	case u.keyed:
		p.Tokens, whole = t.memo.Tokens(u.key)
	}
	// The memo shares its ids, but may forget them before this request ends.
	if x.prompts.Add(4*int64(len(p.Tokens))) != nil {
		p.Tokens = nil
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

// ask asks an engine, by the names and keys that engines know.
func (t *tokenSource) ask(x *exchange, key tokenmemo.Key) []uint32 {
	to := t.group.Load().target
	header, body := x.r.Header, x.in.Bytes()
	if !sameKey(to.Header, http.Header{}) {
		header = to.Header
	}
	if e := x.edit(router.Target{Ref: to}); e.at != nil {
		n := int64(e.size(len(body)))
		if !x.in.Pool().Reserve(n) {
			return nil
		}
		defer x.in.Pool().Give(n)
		body = e.apply(body)
	}
	ids, _ := t.client.TokensOf(x.r.Context(), key, header, body) // counted and logged there
	return ids
}

// reader returns the reader that collects the ids of the reply, nil if none are requested.
func (u *tokenUse) reader() *tokenmemo.Reply {
	if u.source == nil || !u.keyed || !u.key.ReturnsIDs {
		return nil
	}
	if u.source.reading.Add(1) > maxReading {
		u.source.reading.Add(-1)
		return nil
	}
	u.reading = true
	return &tokenmemo.Reply{Memory: u.source.memory}
}

// release ends the use of a reader.
func (u *tokenUse) release() {
	if u.reading {
		u.reading = false
		u.source.reading.Add(-1)
	}
}

// learn takes over the ids and counts of a reply.
func (u *tokenUse) learn(ids *tokenmemo.Reply, d router.Decision, o *router.Outcome) {
	if u.source == nil {
		return
	}
	t := u.source
	engine := "" // as package tokenize names it
	if ref, ok := d.Target.Ref.(*config.Target); ok {
		engine = ref.Base.String()
	}
	if ids != nil && o.Err == nil {
		if prompt, output := ids.Tokens(); prompt != nil {
			t.memo.Learn(u.key.Of(engine), prompt, output)
		}
	}
	if o.PromptTokens <= 0 || u.ids == 0 {
		return
	}
	if !u.partial {
		if o.PromptTokens != u.ids {
			t.miscounted.Add(1)
			if t.client != nil {
				t.client.ReportedBy(engine, u.key, u.ids, o.PromptTokens)
			} else {
				t.memo.Counted(u.key, engine, u.ids, o.PromptTokens)
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

func (t *tokenSource) close() {
	if t.client != nil {
		t.client.Close()
	}
}

// tokenStats are the counts of a token source on the page and in the last log line.
type tokenStats struct {
	Source string
	// Given counts the requests that came with ids, Whole and Partial those of which
	// all ids, or the first of them, were found, None the others. Miscounted are those
	// of which the engine counted another number of tokens.
	Given, Whole, Partial, None, Miscounted int64
	// PartialJudged counts the replies to Partial ones, PartialTooMuch those of
	// them in which less was cached than predicted.
	PartialJudged, PartialTooMuch int64
	Memo                          tokenmemo.Stats
	Tokenize                      *tokenize.Stats `json:",omitempty"`
}

func (t *tokenSource) stats() *tokenStats {
	if t == nil {
		return nil
	}
	s := &tokenStats{
		Source: t.settings.Kind, Given: t.given.Load(), Whole: t.whole.Load(), Partial: t.partial.Load(), None: t.none.Load(),
		Miscounted: t.miscounted.Load(), PartialJudged: t.judged.Load(), PartialTooMuch: t.tooMuch.Load(),
		Memo: t.memo.Stats(),
	}
	if t.client != nil {
		c := t.client.Stats()
		s.Tokenize = &c
	}
	return s
}
