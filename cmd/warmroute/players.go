package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// players are the users of a demo.
type players struct {
	demo demo
	work *workload.Workload
	url  string

	http  *http.Client
	mu    sync.Mutex // guards tally
	tally tally
}

// tally is the result of a phase.
type tally struct {
	ttft           []time.Duration
	targets        map[string]int
	prompt, cached int // tokens, as the replicas report them
}

func (t *tally) cachedShare() float64 { return float64(t.cached) / float64(max(t.prompt, 1)) }

func (t *tally) mean() time.Duration {
	var sum time.Duration
	for _, d := range t.ttft {
		sum += d
	}
	return sum / time.Duration(max(len(t.ttft), 1))
}

// quantile is by nearest rank.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.ttft) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t.ttft))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func (t *tally) perTarget() string {
	var s []string
	for _, n := range slices.Backward(slices.Sorted(maps.Values(t.targets))) {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, " ")
}

// play runs all conversations, users of them at a time, and reports each answer to
// step. The first failure ends it.
func (p *players) play(ctx context.Context, progress *progress) (*tally, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: p.demo.users, DisableCompression: true}
	defer transport.CloseIdleConnections()
	p.http = &http.Client{Transport: transport}
	p.tally.targets = make(map[string]int)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for user := range p.demo.users {
		wg.Go(func() {
			// Users arrive one after the other, not as a crowd.
			if !pause(ctx, p.scaled(p.demo.think)*time.Duration(user)/time.Duration(p.demo.users)) {
				return
			}
			for c := range next {
				if err := p.converse(ctx, c, progress); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	// The longest first, so that there are as many users to the end.
	order := make([]int, len(p.work.Conversations))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return p.work.Conversations[b].Turns() - p.work.Conversations[a].Turns()
	})
feed:
	for _, c := range order {
		select {
		case next <- c:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	progress.end()
	if err := cause(ctx); err != nil {
		return nil, err
	}
	return &p.tally, nil
}

// scaled turns the engines' time into this process's.
func (p *players) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / p.demo.speed)
}

// converse plays conversation c: each question is sent after the answer to the
// one before, and carries all of it.
func (p *players) converse(ctx context.Context, c int, progress *progress) error {
	think := rand.New(rand.NewPCG(p.demo.chat.Seed, uint64(c)))
	var said []workload.Message
	for _, m := range p.work.Conversations[c].Messages {
		if m.Role == "assistant" {
			continue
		}
		said = append(said, m)
		if m.Role != "user" {
			continue
		}
		answer, err := p.ask(ctx, said)
		if err != nil {
			return fmt.Errorf("conversation %d: %w", c, err)
		}
		said = append(said, workload.Message{Role: "assistant", Content: answer})
		progress.step()
		if !pause(ctx, time.Duration(think.ExpFloat64()*float64(p.scaled(p.demo.think)))) {
			return nil
		}
	}
	return nil
}

// pause waits and reports whether ctx lasted that long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask sends one request and returns the answer.
func (p *players) ask(ctx context.Context, said []workload.Message) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": p.work.Model, "messages": said, "stream": true,
		"stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := p.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return "", fmt.Errorf("%s: %s", resp.Status, text)
	}

	var (
		answer strings.Builder
		first  time.Duration
		u      struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		done  bool
		lines = bufio.NewScanner(resp.Body)
	)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
			Usage   json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return "", err
		}
		for _, c := range event.Choices {
			if c.Delta.Content != "" && first == 0 {
				first = time.Since(start)
			}
			answer.WriteString(c.Delta.Content)
		}
		if len(event.Usage) > 0 {
			if err := json.Unmarshal(event.Usage, &u); err != nil {
				return "", err
			}
		}
	}
	switch {
	case lines.Err() != nil:
		return "", lines.Err()
	case !done || first == 0 || u.Prompt == 0:
		return "", fmt.Errorf("the reply is not whole")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally.ttft = append(p.tally.ttft, first)
	p.tally.targets[resp.Header.Get(headerTarget)]++
	p.tally.prompt += u.Prompt
	p.tally.cached += u.Details.Cached
	return answer.String(), nil
}
