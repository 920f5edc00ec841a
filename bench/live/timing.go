package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// Parameters of the timed legs.
const (
	timedClients = 4
	timedPasses  = 4  // a wave of its own each
	timedReply   = 24 // tokens of each reply
	// The model of the timed legs: a prefill of 1,000 tokens takes long enough on
	// one processor that a found prefix shows in the time to first token.
	timedHidden = 256
	timedLayers = 6
)

// timedStrategies are compared; the ratios are to the last one.
var timedStrategies = []string{leastWork, leastWorkEvents, approx, precise, roundRobin}

// timedRequest is a chat request that streams.
type timedRequest struct {
	request
	Stream  bool `json:"stream"`
	Options struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// firstToken is the outcome of one streamed request.
type firstToken struct {
	after          time.Duration // to the first event of the reply
	cached, tokens int           // of the prompt, as the engine reports
	target         string        // the engine's name or address
}

// timing has the outcomes of one strategy, by pass.
type timing struct {
	passes [timedPasses][]firstToken
}

// summary is what is printed of outcomes.
type summary struct {
	requests, cached, tokens int
	most                     int // at one engine
	mean, p99                time.Duration
}

func summarize(all []firstToken) summary {
	s := summary{requests: len(all)}
	if len(all) == 0 {
		return s
	}
	times := make([]time.Duration, len(all))
	var sum time.Duration
	for i, f := range all {
		times[i] = f.after
		sum += f.after
		s.cached += f.cached
		s.tokens += f.tokens
	}
	at := make(map[string]int)
	for _, f := range all {
		at[f.target]++
		s.most = max(s.most, at[f.target])
	}
	slices.Sort(times)
	s.mean = sum / time.Duration(len(all))
	s.p99 = times[(len(times)*99+99)/100-1] // nearest rank
	return s
}

// timedBodies returns the bodies of a wave, and the index of the request before
// each in the same conversation, -1 for a first turn. The assistant's messages
// are the workload's, so all strategies get the same bytes.
func timedBodies(w *workload.Workload) (bodies [][]byte, before []int, err error) {
	last := make(map[int]int)
	for i, r := range w.Requests {
		q := timedRequest{request: request{Model: modelName, Messages: w.Conversations[r.Conversation].Messages[:2*r.Turn+2],
			MaxTokens: timedReply, IgnoreEOS: true}, Stream: true}
		q.Options.Usage = true
		b, err := json.Marshal(q)
		if err != nil {
			return nil, nil, err
		}
		p, ok := last[r.Conversation]
		if !ok {
			p = -1
		}
		bodies, before, last[r.Conversation] = append(bodies, b), append(before, p), i
	}
	return bodies, before, nil
}

// stream sends a streamed request and reads it to its end.
func stream(ctx context.Context, gateway string, body []byte) (firstToken, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var f firstToken
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return f, err
	}
	req.Header.Set("Content-Type", "application/json")
	sent := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return f, fmt.Errorf("the gateway answered %s: %s", resp.Status, b)
	}
	ended := false
	f.target = resp.Header.Get("X-Warmroute-Target")
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if f.after == 0 {
			f.after = time.Since(sent)
		}
		if data == "[DONE]" {
			ended = true
			continue
		}
		var r reply
		if err := json.Unmarshal([]byte(data), &r); err != nil {
			return f, fmt.Errorf("an event that cannot be read: %w: %.300s", err, data)
		}
		if r.Usage.PromptTokens > 0 {
			f.tokens, f.cached = r.Usage.PromptTokens, r.Usage.PromptTokensDetails.CachedTokens
		}
	}
	if err := lines.Err(); err != nil {
		return f, err
	}
	if !ended || f.tokens == 0 {
		return f, errors.New("a stream without its usage or its end")
	}
	return f, nil
}

// leg sends a wave through the gateway, timedClients requests at a time, in
// order; a turn waits for the end of the one before it.
func leg(ctx context.Context, gateway string, w *workload.Workload) ([]firstToken, error) {
	bodies, before, err := timedBodies(w)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := make([]firstToken, len(bodies))
	ended := make([]chan struct{}, len(bodies))
	free := make(chan struct{}, timedClients)
	var wg sync.WaitGroup
	for i, b := range bodies {
		ended[i] = make(chan struct{})
		if p := before[i]; p >= 0 {
			<-ended[p] // closed in any case
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { close(ended[i]); <-free }()
			var err error
			if out[i], err = stream(ctx, gateway, b); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return out, context.Cause(ctx)
}

// timed compares the strategies' times to first token on fresh engines with a
// larger model. Each strategy gets the same requests in each pass, from empty
// caches and a new gateway; each second pass runs in the opposite order, so that a
// load of the machine that changes favours none.
func (s *study) timed(ctx context.Context) (map[string]*timing, error) {
	if err := s.restart(ctx, "model-timed", 2*s.fleet.blocks, ""); err != nil {
		return nil, err
	}
	out := make(map[string]*timing)
	play := func(strategy string, w *workload.Workload) ([]firstToken, error) {
		if err := s.fresh(ctx, strategy); err != nil {
			return nil, err
		}
		all, err := leg(ctx, s.fleet.url, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strategy, err)
		}
		return all, nil
	}
	say("warming up")
	if _, err := play(roundRobin, load(100, 4)); err != nil {
		return nil, err
	}
	order := slices.Clone(timedStrategies)
	for pass := range timedPasses {
		w := load(uint64(11+pass), s.per)
		for _, strategy := range order {
			f, err := play(strategy, w)
			if err != nil {
				return out, err
			}
			if out[strategy] == nil {
				out[strategy] = &timing{}
			}
			out[strategy].passes[pass] = f
			t := summarize(f)
			say("%s, pass %d: mean %s, p99 %s, %s cached", strategy, pass+1, t.mean.Round(time.Millisecond),
				t.p99.Round(time.Millisecond), share(t.cached, t.tokens))
		}
		slices.Reverse(order)
	}
	return out, nil
}

// timedRows are the lines of the table of timed.
func timedRows(all map[string]*timing) [][]string {
	base := all[timedStrategies[len(timedStrategies)-1]]
	if base == nil {
		return nil
	}
	lines := [][]string{{"strategy", "requests", "busier engine", "tokens cached", "mean TTFT", "p99 TTFT",
		"mean ratio", "p99 ratio",
		"mean ratio by pass"}}
	ratio := func(a, b time.Duration) string {
		if b == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", float64(a)/float64(b))
	}
	of := summarize(slices.Concat(base.passes[:]...))
	for _, name := range timedStrategies {
		t := all[name]
		if t == nil {
			continue
		}
		m := summarize(slices.Concat(t.passes[:]...))
		var by, busier []string
		for i, p := range t.passes {
			sum := summarize(p)
			by = append(by, ratio(sum.mean, summarize(base.passes[i]).mean))
			busier = append(busier, share(sum.most, sum.requests))
		}
		lines = append(lines, []string{name, fmt.Sprint(m.requests), strings.Join(busier, ", "), share(m.cached, m.tokens),
			fmt.Sprint(m.mean.Round(time.Millisecond)), fmt.Sprint(m.p99.Round(time.Millisecond)), ratio(m.mean, of.mean),
			ratio(m.p99, of.p99), strings.Join(by, ", ")})
	}
	return lines
}
