package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/vllmtest"
)

// players are the users of a phase of a demo.
type players struct {
	demo     demo
	phase    phase
	replicas []*vllmtest.Server
	urls     []string // of the gateways

	http *http.Client
	mu   sync.Mutex
	done int // requests
}

// play runs all conversations, users of them at a time, and reports each answer to
// step. The first failure ends it, unless the phase is lossy.
func (p *players) play(ctx context.Context, progress *progress) error {
	users := cmp.Or(p.phase.users, p.demo.users)
	transport := &http.Transport{MaxIdleConnsPerHost: users, DisableCompression: true}
	defer transport.CloseIdleConnections()
	p.http = &http.Client{Transport: transport}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for user := range users {
		wg.Go(func() {
			// Users arrive one after the other, not as a crowd.
			if !pause(ctx, p.scaled(p.demo.think)*time.Duration(user)/time.Duration(users)) {
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
	order := make([]int, len(p.phase.work.Conversations))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return p.phase.work.Conversations[b].Turns() - p.phase.work.Conversations[a].Turns()
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
	return cause(ctx)
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
	for _, m := range p.phase.work.Conversations[c].Messages {
		if m.Role == "assistant" {
			continue
		}
		said = append(said, m)
		if m.Role != "user" {
			continue
		}
		answer, err := p.ask(ctx, said, p.urls[think.IntN(len(p.urls))])
		if err != nil && (!p.phase.lossy || cause(ctx) != nil) {
			return fmt.Errorf("conversation %d: %w", c, err)
		}
		said = append(said, workload.Message{Role: "assistant", Content: answer})
		progress.step()
		if err := p.over(); err != nil {
			return err
		}
		if !pause(ctx, time.Duration(think.ExpFloat64()*float64(p.scaled(p.demo.think)))) {
			return nil
		}
	}
	return nil
}

// over counts a request that is over.
func (p *players) over() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.phase.strike == nil {
		return nil
	}
	return p.phase.strike(p.done, p.replicas)
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

// ask sends one request to a gateway, counts how it ends and returns the answer.
func (p *players) ask(ctx context.Context, said []workload.Message, url string) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": p.phase.work.Model, "messages": said, "stream": true,
		"stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	failed := func(t *tally) { t.failed++ }
	resp, err := p.http.Do(req)
	if err != nil {
		p.phase.chapter.count(failed)
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		p.phase.chapter.count(failed)
		return "", fmt.Errorf("%s: %s", resp.Status, text)
	}
	attempts, _ := strconv.Atoi(resp.Header.Get(headerAttempts))
	r, err := readStream(resp.Body)
	p.phase.chapter.count(func(t *tally) {
		t.retried += max(attempts-1, 0)
		t.targets[resp.Header.Get(headerTarget)]++
		if err != nil {
			t.cut++
			return
		}
		t.answered++
		t.prompt += r.prompt
		t.cached += r.cached
	})
	return r.answer, err
}

// streamed is a reply that was streamed.
type streamed struct {
	answer         string
	prompt, cached int // tokens
}

// readStream reads a reply to its end.
func readStream(body io.Reader) (streamed, error) {
	var (
		answer strings.Builder
		u      struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		done  bool
		lines = bufio.NewScanner(body)
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
			return streamed{}, err
		}
		for _, c := range event.Choices {
			answer.WriteString(c.Delta.Content)
		}
		if len(event.Usage) > 0 {
			if err := json.Unmarshal(event.Usage, &u); err != nil {
				return streamed{}, err
			}
		}
	}
	r := streamed{answer.String(), u.Prompt, u.Details.Cached}
	switch {
	case lines.Err() != nil:
		return r, lines.Err()
	case !done || r.answer == "" || u.Prompt == 0:
		return r, errors.New("the reply is not whole")
	}
	return r, nil
}
