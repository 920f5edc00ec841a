package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// served is one request of a client, with all its attempts.
type served struct {
	at             time.Duration // since the clients began
	first          time.Duration // to the first token, of the attempt that was answered
	prompt, cached int           // tokens, by the engine's reply
	again          int           // attempts that failed
	err            error         // it was lost
}

// clients hold conversations with a fleet of gateways, as chats do: a turn's request has all turns before it, with the
// replies as they came. Each request goes to a gateway drawn again, and to another one if that fails.
type clients struct {
	urls   []string
	w      *workload.Workload
	rate   float64 // requests a second, about
	think  time.Duration
	tokens int // of a reply
	seed   uint64
	http   *http.Client
	begun  time.Time

	mu   sync.Mutex
	done []served
	last [][]workload.Message // of conversations that have ended, for a look at the views

	sending map[*served]struct{}
}

// sendTimeout bounds an attempt, attempts the number of them.
const (
	sendTimeout = 30 * time.Second
	attempts    = 4
)

func newClients(urls []string, o *options) *clients {
	return &clients{
		urls: urls, rate: o.rate, think: o.think, tokens: o.tokens, seed: o.seed,
		sending: map[*served]struct{}{},
		w: workload.Chat(workload.ChatConfig{Seed: o.seed, Conversations: 2000, Systems: o.systems, SystemBytes: o.prefix,
			Turns: maxTurns, UserBytes: o.unique}),
		http: &http.Client{Timeout: sendTimeout, Transport: &http.Transport{
			MaxIdleConnsPerHost: 256, DisableCompression: true}},
	}
}

const (
	maxTurns  = 12
	meanTurns = (maxTurns + 1) / 2.0
)

// run begins conversations until ctx is done, and waits for the requests that were sent by then. Conversations do not
// go on after it.
func (c *clients) run(ctx context.Context) {
	r := rand.New(rand.NewPCG(c.seed, 77))
	c.begun = time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	var at time.Duration
	for i := 0; ; i++ {
		at += time.Duration(r.ExpFloat64() / c.rate * meanTurns * 1e9)
		select {
		case <-ctx.Done():
			return
		case <-time.After(at - time.Since(c.begun)):
		}
		wg.Go(func() { c.talk(ctx, i) })
	}
}

// talk holds a conversation.
func (c *clients) talk(ctx context.Context, i int) {
	r := rand.New(rand.NewPCG(c.seed, uint64(i)))
	conv := c.w.Conversations[i%len(c.w.Conversations)]
	messages := []workload.Message{conv.Messages[0]}
	// Each is another one, though there are no more texts.
	opening := fmt.Sprintf("%d. %s", i, conv.Messages[1].Content)
	messages = append(messages, workload.Message{Role: "user", Content: opening})
	for turn := range conv.Turns() {
		if turn > 0 {
			messages = append(messages, conv.Messages[1+2*turn])
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(r.ExpFloat64() * float64(c.think))):
			}
		}
		reply, s := c.send(r, messages)
		c.mu.Lock()
		c.done = append(c.done, *s)
		delete(c.sending, s)
		c.mu.Unlock()
		if s.err != nil {
			return
		}
		messages = append(messages, workload.Message{Role: "assistant", Content: reply})
	}
	c.mu.Lock()
	c.last = append(c.last, messages)
	c.mu.Unlock()
}

// send sends a request, and again to another gateway if one fails.
func (c *clients) send(r *rand.Rand, messages []workload.Message) (reply string, s *served) {
	s = &served{at: time.Since(c.begun)}
	c.mu.Lock()
	c.sending[s] = struct{}{}
	c.mu.Unlock()
	body, err := json.Marshal(struct {
		Model     string             `json:"model"`
		Messages  []workload.Message `json:"messages"`
		MaxTokens int                `json:"max_tokens"`
		Stream    bool               `json:"stream"`
		Options   map[string]bool    `json:"stream_options"`
	}{"bench", messages, c.tokens, true, map[string]bool{"include_usage": true}})
	if err != nil {
		s.err = err
		return "", s
	}
	to := r.IntN(len(c.urls))
	for range attempts {
		if reply, s.err = c.try(c.urls[to], body, s); s.err == nil {
			return reply, s
		}
		s.again++
		if len(c.urls) > 1 {
			to = (to + 1 + r.IntN(len(c.urls)-1)) % len(c.urls)
		}
	}
	return "", s
}

// try sends a request to one gateway.
func (c *clients) try(url string, body []byte, s *served) (string, error) {
	start := time.Now()
	resp, err := c.http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	var text strings.Builder
	var chunk struct {
		Choices []struct{ Delta struct{ Content string } }
		Usage   struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	first := false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			return text.String(), nil
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return "", err
		}
		for _, x := range chunk.Choices {
			if x.Delta.Content != "" && !first {
				first, s.first = true, time.Since(start)
			}
			text.WriteString(x.Delta.Content)
		}
		s.prompt, s.cached = chunk.Usage.Prompt, chunk.Usage.Details.Cached
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", errors.New("the reply was cut off")
}

// settle waits until the requests that were begun before a time have an end.
func (c *clients) settle(ctx context.Context, before time.Duration) error {
	for {
		c.mu.Lock()
		open := false
		for s := range c.sending {
			open = open || s.at < before
		}
		c.mu.Unlock()
		if !open {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// summary is what became of the requests of a time.
type summary struct {
	requests, again, lost int
	mean, p99             time.Duration
	cached                float64
	err                   error // the first of the lost ones
}

// between returns the requests that were begun from a to b.
func (c *clients) between(a, b time.Duration) summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s summary
	var firsts []uint32
	var sum time.Duration
	prompt, cached := 0, 0
	for _, d := range c.done {
		if d.at < a || d.at >= b {
			continue
		}
		s.requests++
		s.again += d.again
		if d.err != nil {
			if s.lost++; s.err == nil {
				s.err = d.err
			}
			continue
		}
		firsts = append(firsts, uint32(d.first.Microseconds()))
		sum += d.first
		prompt += d.prompt
		cached += d.cached
	}
	s.mean = sum / time.Duration(max(len(firsts), 1))
	s.p99 = quantile(firsts, 0.99)
	s.cached = float64(cached) / float64(max(prompt, 1))
	return s
}
