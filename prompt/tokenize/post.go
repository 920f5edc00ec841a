package tokenize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// question makes the body that asks for the ids of a request. Its members are
// passed on as they are.
func question(chat bool, body []byte) ([]byte, error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	members := []string{"model", "prompt", "add_special_tokens"}
	if chat {
		members = []string{"model", "messages", "tools", "chat_template", "chat_template_kwargs",
			"add_generation_prompt", "continue_final_message", "add_special_tokens"}
	}
	out := []byte{'{'}
	for _, m := range members {
		v, ok := in[m]
		if !ok || string(v) == "null" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), m...), `":`...), v...)
	}
	return append(out, '}'), nil
}

// answer is what the engines answer. vLLM's has max_model_len and token_strs too.
type answer struct {
	Count  *int            `json:"count"`
	Tokens json.RawMessage `json:"tokens"`
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
	for _, k := range []string{"Authorization", "X-Api-Key"} {
		if v := h.Get(k); v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.MaxReply)+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	if len(b) > c.cfg.MaxReply {
		return nil, fmt.Errorf("%w: the answer is longer than %d bytes", ErrFailed, c.cfg.MaxReply)
	}
	switch s := resp.StatusCode; {
	case s == http.StatusOK:
		ids, err := read(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFailed, err)
		}
		return ids, nil
	case s == http.StatusNotFound && !names(b), s == http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("%w: the engine has no such route (%d)", ErrFailed, s)
	case s >= 400 && s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout:
		return nil, fmt.Errorf("%w with status %d", ErrRefused, s)
	default:
		return nil, fmt.Errorf("%w: status %d", ErrFailed, s)
	}
}

// names reports whether a 404 is about the model: a missing route's has no error
// object but FastAPI's {"detail": "Not Found"}, or one that says the same.
func names(b []byte) bool {
	var v struct {
		Error   *struct{ Message string }
		Object  string
		Message string
	}
	if json.Unmarshal(b, &v) != nil {
		return false
	}
	if v.Error != nil {
		return v.Error.Message != "Not Found"
	}
	return v.Object == "error"
}

// read reads an answer. Its count has to be that of its ids.
func read(b []byte) ([]uint32, error) {
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, errors.New("the answer is not understood")
	}
	var ids []uint32
	if len(a.Tokens) == 0 || a.Tokens[0] != '[' || json.Unmarshal(a.Tokens, &ids) != nil {
		return nil, errors.New("the answer has no token ids")
	}
	if bytes.Contains(a.Tokens, []byte("null")) { // encoding/json makes it 0
		return nil, errors.New("a token id is null")
	}
	if a.Count == nil || *a.Count != len(ids) {
		return nil, errors.New("the answer's count is not that of its ids")
	}
	if len(ids) == 0 {
		return nil, errors.New("the answer has no token ids")
	}
	return ids, nil
}
