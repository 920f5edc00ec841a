package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/prompt"
)

// chatBody has the members of a chat completion request that package prompt
// reads, for encoding/json.
type chatBody struct {
	Model     string `json:"model"`
	CacheSalt string `json:"cache_salt"`
	User      string `json:"user"`
	LoraPath  string `json:"lora_path"`
	Tools     []struct {
		Type     string `json:"type"`
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	Messages []struct {
		Role       string `json:"role"`
		Content    string `json:"content"`
		Name       string `json:"name"`
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
}

// promptRows measures FromChat on a long conversation's body.
func promptRows(t *table, o *options) error {
	t.say("prompt: FromChat")
	w := workload.Chat(workload.ChatConfig{Conversations: 90, Turns: 90})
	const size = 128 << 10
	var body []byte
	for _, r := range w.Requests {
		if b := w.AppendBody(nil, r, true); len(b) >= size && (body == nil || len(b) < len(body)) {
			body = b
		}
	}
	if body == nil {
		return fmt.Errorf("no body of %d bytes in the workload", size)
	}
	p, err := prompt.FromChat(body)
	if err != nil {
		return err
	}
	var v chatBody
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	const calls = 150
	var failed error
	got := best(o.reps,
		func() time.Duration {
			return pass(calls, func(int) { _, failed = prompt.FromChat(body) }).p(.5)
		},
		func() time.Duration {
			return pass(calls, func(int) {
				var v chatBody
				failed = json.Unmarshal(body, &v)
			}).p(.5)
		},
	)
	if failed != nil {
		return failed
	}
	allocs := mallocs(calls, func(int) { _, failed = prompt.FromChat(body) })
	t.check("prompt.FromChat, 128 KiB body, p50", ">= 8x faster than encoding/json", ratio(got[1], got[0]) >= 8,
		"%.1fx faster (%.1f us against %.0f us)", ratio(got[1], got[0]), us(got[0]), us(got[1]))
	t.reading("  of it", "%d KiB body, %d messages, %d KiB text, %.0f allocations, %.2f GB/s",
		len(body)>>10, len(v.Messages), len(p.Text)>>10, allocs, float64(len(body))/float64(got[0].Nanoseconds()))
	return failed
}
