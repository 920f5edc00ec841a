package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
)

const (
	splitEngines = 3
	splitModel   = "model-split" // with weights, so that a text depends on all of its prompt
	splitBlocks  = 192
	splitReply   = 24 // tokens
	splitPath    = "/v1/completions"
	// lease is how long a prefill engine keeps blocks. The machine may be busy.
	lease = 20 * time.Second
)

// pair is three engines: two with roles, and one that is used as needed.
type pair struct {
	s        *study
	p, d, b  *engine
	side     [splitEngines]string // the ports of NIXL's side channels
	protocol disagg.Protocol
	rows     [][]string
	facts    []string
	lost     []string
	random   *rand.Rand
}

func (x *pair) engines() []*engine { return []*engine{x.p, x.d, x.b} }

// start starts engines with the protocol's connector and waits for them.
func (x *pair) start(ctx context.Context, list ...*engine) error {
	for _, e := range list {
		port := x.side[slices.Index(x.engines(), e)]
		config := map[string]any{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu",
			"kv_connector_extra_config": map[string]any{"kv_lease_duration": int(lease.Seconds())}}
		if x.protocol == disagg.Stored {
			config = map[string]any{"kv_connector": "ExampleConnector", "kv_role": "kv_both",
				"kv_connector_extra_config": map[string]any{"shared_storage_path": filepath.Join(x.s.fleet.dir, "stored")}}
		}
		b, err := json.Marshal(config)
		if err != nil {
			return err
		}
		if err := x.s.fleet.serve(e, splitModel, splitBlocks,
			[]string{"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT=" + port},
			"--kv-transfer-config", string(b)); err != nil {
			return err
		}
	}
	for _, e := range list {
		if err := x.s.fleet.ready(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (x *pair) stop() error {
	var errs []error
	for _, e := range x.engines() {
		if e.p != nil {
			errs = append(errs, e.p.stop())
		}
	}
	return errors.Join(errs...)
}

// inOrder picks the first target that is ready, in the order of its names.
type inOrder []string

func (o inOrder) Pick(_ context.Context, _ router.Prompt, targets []router.Target) (router.Decision, error) {
	best := router.Target{}
	for _, t := range targets {
		if t.State == router.Ready && (best.ID == "" || slices.Index(o, t.ID) < slices.Index(o, best.ID)) {
			best = t
		}
	}
	if best.ID == "" {
		return router.Decision{}, router.ErrNoTarget
	}
	return router.Decision{Target: best, Reason: "order"}, nil
}

func (inOrder) Record(router.Decision, router.Outcome) {}

// splitter returns a Splitter that prefills at p, if it can, and decodes at d, if it can. The third engine is for
// both, or not there.
func (x *pair) splitter(third bool, more disagg.Config) (*disagg.Splitter, error) {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, err
	}
	roles := map[string]disagg.Role{x.p.url(): disagg.Prefill, x.d.url(): disagg.Decode}
	if third {
		roles[x.b.url()] = disagg.Both
	}
	var members []loadview.Member
	for id := range roles {
		members = append(members, loadview.Member{ID: id})
	}
	if err := view.Set(members); err != nil {
		return nil, err
	}
	o := router.Options{Attempts: 4, Backoff: -1, FailOpen: true}
	more.Router = router.New(inOrder{x.d.url(), x.b.url(), x.p.url()}, view, o)
	more.Prefill = router.New(inOrder{x.p.url(), x.b.url(), x.d.url()}, view, o)
	more.Protocol, more.MinUncached, more.PinnedFor = x.protocol, -1, lease
	more.PrefillTimeout, more.DecodeTimeout = 2*time.Minute, 2*time.Minute
	more.Transport = once.Transport
	more.Place = func(t router.Target) disagg.Place { return disagg.Place{Role: roles[t.ID]} }
	return disagg.New(more)
}

// answer is a reply.
type answer struct {
	Choices []struct {
		Text     string
		Logprobs struct {
			Tokens []float64 `json:"token_logprobs"`
		}
	}
}

// alike reports whether two replies have the same text, and how far apart their probabilities are.
func (t answer) alike(o answer) (bool, float64) {
	if len(t.Choices) != 1 || len(o.Choices) != 1 {
		return false, math.Inf(1)
	}
	a, b := t.Choices[0], o.Choices[0]
	far := 0.0
	for i := range min(len(a.Logprobs.Tokens), len(b.Logprobs.Tokens)) {
		far = max(far, math.Abs(a.Logprobs.Tokens[i]-b.Logprobs.Tokens[i]))
	}
	return a.Text == b.Text, far
}

// body returns a request with a new prompt of n tokens.
func (x *pair) body(n int) []byte {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 10 + x.random.IntN(2000)
	}
	b, _ := json.Marshal(map[string]any{"model": modelName, "prompt": ids, "max_tokens": splitReply, "temperature": 0,
		"ignore_eos": true, "logprobs": 1})
	return b
}

// alone asks one engine.
func alone(ctx context.Context, e *engine, body []byte) (t answer, err error) {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return t, err
	}
	return t, post(ctx, e.url()+splitPath, v, &t)
}

// ask sends a request through s. sent, which may be nil, is called after a request to a decode engine has been
// started.
func ask(ctx context.Context, s *disagg.Splitter, body []byte, sent func(*engineCall)) (t answer, err error) {
	p, err := prompt.FromRequest(splitPath, http.Header{}, body)
	if err != nil {
		return t, err
	}
	err = s.Do(ctx, p, disagg.Request{Path: splitPath, Body: body},
		func(ctx context.Context, a *disagg.Attempt) (router.Outcome, error) {
			url := a.Lease.Decision().Target.ID
			if sent != nil {
				sent(&engineCall{url: url})
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+splitPath, bytes.NewReader(a.Body))
			if err != nil {
				return router.Outcome{}, err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := once.Do(req)
			if err != nil {
				return router.Outcome{}, err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
			if err != nil {
				return router.Outcome{}, err
			}
			if resp.StatusCode == http.StatusOK {
				if err := json.Unmarshal(b, &t); err != nil {
					return router.Outcome{}, err
				}
			}
			return router.Outcome{Status: resp.StatusCode}, nil
		})
	return t, err
}

// engineCall is a request to a decode engine.
type engineCall struct{ url string }

// counts are some of an engine's metrics, by name and source.
func counts(ctx context.Context, e *engine) (map[string]float64, error) {
	page, err := get(ctx, e.url()+"/metrics")
	if err != nil {
		return nil, err
	}
	m := make(map[string]float64)
	for l := range strings.Lines(page) {
		name, rest, ok := strings.Cut(l, "{")
		labels, value, ok2 := strings.Cut(rest, "} ")
		if !ok || !ok2 {
			continue
		}
		if _, source, ok := strings.Cut(labels, `source="`); ok {
			name += " " + strings.TrimSuffix(source, `"`)
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err == nil {
			m[name] += v
		}
	}
	return m, nil
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := once.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return string(b), err
}

// forget empties the prefix caches of those that run.
func (x *pair) forget(ctx context.Context, list ...*engine) error {
	for _, e := range list {
		if err := post(ctx, e.url()+"/reset_prefix_cache", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// split runs the leg: NIXL, then a store.
func (s *study) split(ctx context.Context) (err error) {
	x := &pair{s: s, random: rand.New(rand.NewPCG(1, 2))}
	for i, e := range []**engine{&x.p, &x.d, &x.b} {
		a, err := ports.Free()
		if err != nil {
			return err
		}
		side, err := ports.Free()
		if err != nil {
			return err
		}
		*e = &engine{name: []string{"prefill", "decode", "third"}[i], http: a}
		x.side[i] = side[strings.LastIndexByte(side, ':')+1:]
	}
	defer func() {
		x.report()
		for i, e := range s.fleet.engines {
			e.peak = max(e.peak, x.engines()[i].peak)
		}
		err = errors.Join(err, x.stop())
		if err == nil && len(x.lost) > 0 {
			err = fmt.Errorf("with prefill and decode apart: %s", strings.Join(x.lost, "; "))
		}
	}()
	x.protocol = disagg.NIXL
	say("starting %d engines with NIXL", splitEngines)
	if err := x.start(ctx, x.engines()...); err != nil {
		return err
	}
	lengths := []int{33, 100, 500, 1000, 1024, 1500, 2000}
	if err := x.handOver(ctx, "NIXL", lengths); err != nil {
		return err
	}
	if err := x.chats(ctx); err != nil {
		return err
	}
	if err := x.trust(ctx); err != nil {
		return err
	}
	if err := x.kills(ctx); err != nil {
		return err
	}
	if err := x.stop(); err != nil {
		return err
	}
	x.protocol = disagg.Stored
	if err := os.MkdirAll(filepath.Join(s.fleet.dir, "stored"), 0o700); err != nil {
		return err
	}
	say("starting 2 engines with ExampleConnector")
	if err := x.start(ctx, x.p, x.d); err != nil {
		return err
	}
	// It stores whole blocks, and an engine computes at least one token of a prompt. With one token after the last
	// block it looks for one block less than it has stored, and finds nothing.
	for i := range lengths {
		lengths[i] = max(lengths[i]-64, 64)/blockSize*blockSize + 2
	}
	if err := x.handOver(ctx, "ExampleConnector", lengths); err != nil {
		return err
	}
	if err := x.step(ctx, "store: the prefill engine dies with the request", false, x.paused(x.p), nil); err != nil {
		return err
	}
	return x.step(ctx, "store: the prefill engine is dead", false, disagg.Config{}, nil)
}

// handOver sends prompts of these lengths, and compares texts and counts with those of one engine alone.
func (x *pair) handOver(ctx context.Context, name string, lengths []int) error {
	s, err := x.splitter(false, disagg.Config{})
	if err != nil {
		return err
	}
	before, err := counts(ctx, x.d)
	if err != nil {
		return err
	}
	same, requests, far := 0, 0, 0.0
	var slow time.Duration
	for _, n := range slices.Concat(lengths, lengths) {
		body := x.body(n)
		start := time.Now()
		got, err := ask(ctx, s, body, nil)
		if err != nil {
			return fmt.Errorf("%s, %d tokens: %w", name, n, err)
		}
		slow = max(slow, time.Since(start))
		// The prefill engine has the prompt now. Alone it must compute it.
		if err := x.forget(ctx, x.p); err != nil {
			return err
		}
		if x.protocol == disagg.Stored { // which it would read
			if err := os.RemoveAll(filepath.Join(x.s.fleet.dir, "stored")); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(x.s.fleet.dir, "stored"), 0o700); err != nil {
				return err
			}
		}
		want, err := alone(ctx, x.p, body)
		if err != nil {
			return err
		}
		requests++
		ok, d := got.alike(want)
		if ok {
			same++
		}
		far = max(far, d)
	}
	after, err := counts(ctx, x.d)
	if err != nil {
		return err
	}
	of := func(source string) float64 {
		k := "vllm:prompt_tokens_by_source_total " + source
		return after[k] - before[k]
	}
	by := of("external_kv_transfer")
	all := by + of("local_compute") + of("local_cache_hit")
	st := s.Stats()
	x.facts = append(x.facts, fmt.Sprintf("%s: %d requests, %d split; %.0f of %.0f prompt tokens (%.2f%%) at the decode "+
		"engine came by transfer; %d texts equal to one engine's; log probabilities at most %.0e apart; the slowest took %s",
		name, requests, st.Split, by, all, 100*by/all, same, far, slow.Round(time.Millisecond)))
	say("%s", x.facts[len(x.facts)-1])
	if by < 0.99*all || same != requests || int(st.Split) != requests {
		x.lost = append(x.lost, x.facts[len(x.facts)-1])
	}
	return nil
}

func (x *pair) report() {
	out := x.s.out
	fmt.Fprintln(out)
	for _, f := range x.facts {
		fmt.Fprintf(out, "- %s.\n", f)
	}
	if len(x.rows) > 0 {
		fmt.Fprintln(out)
		writeTable(out, append([][]string{{"what happens", "the request", "in", "by", "reused/again/stranded"}}, x.rows...))
	}
}
