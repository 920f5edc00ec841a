package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// wave is a set of interleaved conversations, one request at a time. The
// assistant's messages are the engine's replies.
type wave struct {
	load   *workload.Workload
	next   int // of load.Requests
	turns  [][]workload.Message
	bodies [][]byte // that were sent
}

// newWave returns a wave of conversations over three system prompts, 1 to 8
// turns each.
func newWave(seed uint64, conversations int) *wave {
	l := load(seed, conversations)
	w := &wave{load: l, turns: make([][]workload.Message, len(l.Conversations))}
	for i, c := range l.Conversations {
		w.turns[i] = c.Messages[:1:1]
	}
	return w
}

func load(seed uint64, conversations int) *workload.Workload {
	return workload.Chat(workload.ChatConfig{
		Seed: seed, Conversations: conversations, Systems: 3, SystemBytes: 900,
		Turns: 8, UserBytes: 200, AssistantBytes: 60,
	})
}

func (w *wave) left() int { return len(w.load.Requests) - w.next }

// request is the body of a chat request.
type request struct {
	Model       string             `json:"model"`
	Messages    []workload.Message `json:"messages"`
	MaxTokens   int                `json:"max_tokens"`
	Temperature int                `json:"temperature"`
	IgnoreEOS   bool               `json:"ignore_eos"`
	ReturnIDs   bool               `json:"return_token_ids,omitempty"`
}

// body returns the next request's body; done takes the reply to it.
func (w *wave) body() ([]byte, error) {
	r := w.load.Requests[w.next]
	c := w.load.Conversations[r.Conversation]
	w.turns[r.Conversation] = append(w.turns[r.Conversation], c.Messages[2*r.Turn+1])
	b, err := json.Marshal(request{
		Model: modelName, Messages: w.turns[r.Conversation], IgnoreEOS: true, ReturnIDs: true,
		MaxTokens: 9 + 7*w.next%41, // ends at all places of a block
	})
	w.bodies = append(w.bodies, b)
	return b, err
}

func (w *wave) done(reply string) {
	r := w.load.Requests[w.next]
	w.turns[r.Conversation] = append(w.turns[r.Conversation], workload.Message{Role: "assistant", Content: reply})
	w.next++
}

// sampleText is the training text of the tokenizer: text of the same kind.
func sampleText() string {
	var b strings.Builder
	for _, c := range workload.Chat(workload.ChatConfig{Seed: 1 << 40, Conversations: 60, Systems: 6, SystemBytes: 2000,
		UserBytes: 400, AssistantBytes: 400}).Conversations {
		for _, m := range c.Messages {
			b.WriteString(m.Content)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// reply has the fields that are read of a completion.
type reply struct {
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	Choices        []struct {
		Message struct{ Content string }
	}
	Usage struct {
		PromptTokens        int `json:"prompt_tokens"`
		PromptTokensDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// send sends one chat request through the gateway.
func send(ctx context.Context, gateway string, body []byte) (*exchange, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	x := &exchange{sent: time.Now(), predicted: -1}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return nil, err
	}
	x.end, x.status = time.Now(), resp.StatusCode
	if x.status != http.StatusOK {
		return nil, fmt.Errorf("the gateway answered %s: %.300s", resp.Status, b)
	}
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("a reply that cannot be read: %w: %.300s", err, b)
	}
	if len(r.Choices) != 1 || len(r.PromptTokenIDs) != r.Usage.PromptTokens {
		return nil, fmt.Errorf("a reply with %d choices, %d ids of %d tokens", len(r.Choices), len(r.PromptTokenIDs),
			r.Usage.PromptTokens)
	}
	x.target, x.reason, x.attempts = resp.Header.Get("X-Warmroute-Target"), resp.Header.Get("X-Warmroute-Reason"),
		resp.Header.Get("X-Warmroute-Attempts")
	x.tokens, x.reported, x.text = r.PromptTokenIDs, r.Usage.PromptTokensDetails.CachedTokens, r.Choices[0].Message.Content
	if v := resp.Header.Get("X-Warmroute-Cached-Tokens"); v != "" && !strings.HasPrefix(x.reason, "no_tokens") &&
		!strings.HasPrefix(x.reason, "untrusted") {
		if x.predicted, err = strconv.Atoi(v); err != nil || x.predicted < 0 {
			return nil, fmt.Errorf("X-Warmroute-Cached-Tokens %q", v)
		}
	}
	return x, nil
}
