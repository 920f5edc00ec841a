package tokenize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/warmroute/router/internal/errclass"
	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/membudget"
)

var errNotObject = errors.New("the body is no JSON object")

// question makes the body that asks for the ids of a request. Its members are
// passed on as they are, except for two that have the default of every engine.
//
// Sources: TokenizeChatRequest of vLLM 0.33.0 (vllm/entrypoints/serve/tokenize/protocol.py), which ignores
// tool_choice; TokenizeRequest of SGLang 0.5.23 (python/sglang/srt/entrypoints/openai/protocol.py) with
// _process_messages (serving_chat.py there), by which a tool_choice that names a function leaves the other
// tools out of the prompt.
func question(chat bool, body []byte) ([]byte, error) {
	members := []string{"model", "prompt", "add_special_tokens"}
	if chat {
		members = []string{"model", "messages", "tools", "tool_choice", "chat_template", "chat_template_kwargs",
			"add_generation_prompt", "continue_final_message", "add_special_tokens"}
	}
	values := make([][]byte, len(members))
	s := jsonscan.Start(body)
	if s.Peek() != '{' {
		return nil, errNotObject
	}
	size := 0
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		i := slices.Index(members, string(k))
		s.Peek()
		lo := s.I
		if s.Skip(); i >= 0 {
			values[i] = body[lo:s.I]
			size += s.I - lo
		}
	}
	if s.End(); s.Fault != 0 {
		return nil, errNotObject
	}
	out := append(make([]byte, 0, size+256), '{')
	for i, v := range values {
		if v == nil || string(v) == "null" || standard(members[i], string(v)) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), members[i]...), `":`...), v...)
	}
	return append(out, '}'), nil
}

// standard reports whether a member has the value that all engines use without it. SGLang's /tokenize renders by
// other rules, and some models not at all, if add_generation_prompt is there.
func standard(member, value string) bool {
	return member == "add_generation_prompt" && value == "true" || member == "tool_choice" && value == `"auto"`
}

// post asks one engine.
func (c *Client) post(ctx context.Context, target string, h http.Header, body []byte) ([]uint32, error) {
	if err := c.cfg.Egress.CheckURL(target); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint(target), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["Idempotency-Key"] = []string{} // not sent: net/http asks again if a kept connection was closed
	for _, k := range []string{"Authorization", "X-Api-Key"} {
		if v := h.Get(k); v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, errclass.Wrap(err))
	}
	defer resp.Body.Close()
	// No more is read than the ids of this body can take.
	limit := min(c.cfg.MaxReply, answerBytes+idBytes*len(body))
	hold := c.cfg.Memory.Hold()
	defer hold.Release()
	b, err := membudget.ReadAll(&hold, resp.Body, resp.ContentLength, int64(limit))
	if errors.Is(err, membudget.ErrShed) {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, errclass.Wrap(err))
	}
	if len(b) > limit {
		return nil, fmt.Errorf("%w: the answer is longer than %d bytes", ErrFailed, limit)
	}
	switch s := resp.StatusCode; {
	case s == http.StatusOK:
		if err := hold.Add(4 * int64(min(len(body)+templateIDs, len(b)/2))); err != nil { // the ids
			return nil, fmt.Errorf("%w: %w", ErrBusy, err)
		}
		ids, err := read(ctx, b, len(body))
		if err != nil && !errors.Is(err, ErrFailed) {
			err = fmt.Errorf("%w: %w", ErrFailed, err)
		}
		return ids, err
	case s == http.StatusNotFound && !names(b), s == http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("%w: the engine has no such route (%d)", ErrFailed, s)
	case s >= 400 && s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout:
		return nil, fmt.Errorf("%w with status %d", ErrRefused, s)
	default:
		return nil, fmt.Errorf("%w: status %d", ErrFailed, s)
	}
}
