package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
)

// trust records what an engine makes of parameters that were used, and of some that are too old. It is no
// promise of the engine's, so nothing fails.
func (x *pair) trust(ctx context.Context) error {
	params := func(body []byte) ([]byte, error) {
		b, err := disagg.NIXLPrefill(nil, body)
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.p.url()+splitPath, bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := once.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		reply, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err == nil && disagg.Params(reply) == nil {
			err = fmt.Errorf("the prefill engine's reply has no parameters: %s, %.200s", resp.Status, reply)
		}
		return disagg.Params(reply), err
	}
	fill := func() error { // its blocks, with other prompts
		for range 6 {
			if _, err := alone(ctx, x.p, x.body(1500)); err != nil {
				return err
			}
		}
		return nil
	}
	decode := func(body, p []byte) (answer, error) {
		if err := x.forget(ctx, x.d); err != nil {
			return answer{}, err
		}
		b, err := disagg.WithParams(nil, body, p)
		if err != nil {
			return answer{}, err
		}
		return alone(ctx, x.d, b)
	}
	word := func(want, got answer, err error) string {
		switch ok, _ := want.alike(got); {
		case err != nil:
			return "an error"
		case ok:
			return "the right text"
		}
		return "200 and ANOTHER TEXT"
	}
	body := x.body(1500)
	p, err := params(body)
	if err != nil {
		return err
	}
	want, err := decode(body, p)
	if err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	got, err := decode(body, p)
	x.facts = append(x.facts, "NIXL: parameters sent again after a fetch, with the blocks given to other prompts: "+
		word(want, got, err))
	if p, err = params(body); err != nil {
		return err
	}
	before, err := counts(ctx, x.p)
	if err != nil {
		return err
	}
	const expired = "vllm:nixl_num_kv_expired_reqs_total"
	for end := time.Now().Add(lease + time.Minute); ; {
		// An idle engine looks at its leases with the next request.
		if _, err := alone(ctx, x.p, x.body(40)); err != nil {
			return err
		}
		now, err := counts(ctx, x.p)
		if err != nil {
			return err
		}
		if now[expired] > before[expired] {
			break
		}
		if time.Now().After(end) {
			return errors.New("blocks that nobody fetched are not given back")
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := fill(); err != nil {
		return err
	}
	got, err = decode(body, p)
	x.facts = append(x.facts, fmt.Sprintf("NIXL: parameters sent after the lease of %s (counted in %s): %s", lease,
		expired, word(want, got, err)))
	return x.forget(ctx, x.p, x.d)
}

// paused returns a Config that kills e when it has a request to prefill in its hands.
func (x *pair) paused(e *engine) disagg.Config {
	return disagg.Config{Prepare: func(_ *http.Request, t router.Target) {
		if t.ID == e.url() && !e.p.done() {
			x.killSoon(e)
		}
	}}
}

// killSoon stops an engine, so that it answers nothing, and kills it when the request that is sent now has come.
func (x *pair) killSoon(e *engine) {
	pauseGroup(e.p.group())
	go func() {
		time.Sleep(500 * time.Millisecond) // if it has not come, it is refused, which is served as well
		e.p.kill()
	}()
}

// step sends a request while something happens, and compares the text with one engine's.
func (x *pair) step(ctx context.Context, name string, third bool, c disagg.Config, sent func(*engineCall)) error {
	var by []string
	names := map[string]string{x.p.url(): x.p.name, x.d.url(): x.d.name, x.b.url(): x.b.name}
	c.Trace.PrefillFailed = func(_ context.Context, d router.Decision, _ router.Outcome) {
		by = append(by, names[d.Target.ID]+" fails")
	}
	prefilled := c.Trace.Prefilled
	c.Trace.Prefilled = func(ctx context.Context, p, d router.Decision, took time.Duration) {
		by = append(by, names[p.Target.ID]+" prefills")
		if prefilled != nil {
			prefilled(ctx, p, d, took)
		}
	}
	s, err := x.splitter(third, c)
	if err != nil {
		return err
	}
	body := x.body(1000)
	start := time.Now()
	got, err := ask(ctx, s, body, func(e *engineCall) {
		by = append(by, "to "+names[e.url])
		if sent != nil {
			sent(e)
		}
	})
	took := time.Since(start)
	outcome := "served"
	if err != nil {
		outcome = "LOST: " + err.Error()
	} else {
		e := x.b
		if !third {
			e = x.d
		}
		want, err := alone(ctx, e, body)
		if err != nil {
			return fmt.Errorf("%s: %s does not answer afterwards: %w", name, e.name, err)
		}
		if ok, far := got.alike(want); !ok {
			outcome = fmt.Sprintf("ANOTHER TEXT, %g apart", far)
		}
	}
	if outcome != "served" {
		x.lost = append(x.lost, name+": "+outcome)
	}
	st := s.Stats()
	x.rows = append(x.rows, []string{name, outcome, took.Round(100 * time.Millisecond).String(), strings.Join(by, ", "),
		fmt.Sprintf("%d/%d/%d", st.Reused, st.Again, st.Stranded)})
	say("%s: %s in %s: %s", name, outcome, took.Round(100*time.Millisecond), strings.Join(by, ", "))
	return ctx.Err()
}

// kills has an engine die at each step of a request.
func (x *pair) kills(ctx context.Context) error {
	if err := x.step(ctx, "nothing dies", true, disagg.Config{}, nil); err != nil {
		return err
	}
	if err := x.step(ctx, "the prefill engine dies with the request", true, x.paused(x.p), nil); err != nil {
		return err
	}
	if err := x.step(ctx, "the prefill engine is dead", true, disagg.Config{}, nil); err != nil {
		return err
	}
	if err := x.start(ctx, x.p); err != nil {
		return err
	}
	for _, known := range []string{"which the decode engine does not know yet, ", ""} {
		if known == "" {
			if err := x.start(ctx, x.p); err != nil {
				return err
			}
			if err := x.step(ctx, "the prefill engine was started again", true, disagg.Config{}, nil); err != nil {
				return err
			}
		}
		var c disagg.Config
		c.Trace.Prefilled = func(_ context.Context, p, _ router.Decision, _ time.Duration) {
			if p.Target.ID == x.p.url() {
				x.p.p.kill()
			}
		}
		if err := x.step(ctx, "the prefill engine, "+known+"dies after its reply", true, c, nil); err != nil {
			return err
		}
	}
	if err := x.start(ctx, x.p); err != nil {
		return err
	}
	if err := x.step(ctx, "the decode engine dies with the request", true, disagg.Config{}, func(e *engineCall) {
		if e.url == x.d.url() && !x.d.p.done() {
			x.killSoon(x.d)
		}
	}); err != nil {
		return err
	}
	return x.step(ctx, "the decode engine is dead", true, disagg.Config{}, nil)
}
