package prompt

import (
	"math"

	"github.com/warmroute/router/internal/jsonscan"
)

// Usage is an engine's own count of a request's tokens; 0 if it reported none.
type Usage struct {
	Prompt int // of the whole prompt
	Cached int // of them that were in the KV cache
	Output int
}

// counts are the counts of tokens of a reply, the greatest of each that came: they only grow while a reply goes on.
type counts struct {
	prompt, cached, output int
	// Anthropic's: input leaves out the tokens that were cached, which read and created count.
	input, read, created int
	// reported is whether the engine named the cached tokens, if only as 0.
	reported bool
}

func (u *counts) usage() Usage {
	sum := 0
	for _, n := range [...]int{u.input, u.read, u.created} {
		sum += min(n, math.MaxInt32-sum)
	}
	return Usage{Prompt: max(u.prompt, sum), Cached: max(u.cached, u.read), Output: u.output}
}

// member reads the usage object that a reply or an event has under name.
func (u *counts) member(m *members, name string) { u.object(m.get(name)) }

// nested reads the usage of the object that an event has under name.
func (u *counts) nested(m *members, name string) {
	s := m.get(name)
	if s.Peek() != '{' {
		return
	}
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		if string(k) == "usage" {
			u.object(s)
		}
		s.Skip()
	}
}

// object reads the usage object that is next, of any API: OpenAI's chat completions and completions (prompt_tokens),
// its responses and Anthropic's messages (input_tokens), SGLang's meta_info (cached_tokens next to the others). One
// that is cut says nothing.
func (u *counts) object(s jsonscan.Scanner) {
	if s.Peek() != '{' {
		return
	}
	n := *u
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		switch string(k) {
		case "prompt_tokens":
			n.prompt = max(n.prompt, s.Int())
		case "completion_tokens", "output_tokens":
			n.output = max(n.output, s.Int())
		case "input_tokens":
			n.input = max(n.input, s.Int())
		case "cached_tokens":
			n.reported = n.reported || s.AtDigit()
			n.cached = max(n.cached, s.Int())
		case "cache_read_input_tokens":
			n.reported = n.reported || s.AtDigit()
			n.read = max(n.read, s.Int())
		case "cache_creation_input_tokens":
			n.created = max(n.created, s.Int())
		case "prompt_tokens_details", "input_tokens_details":
			cached, found := s.FindInt("cached_tokens")
			n.cached, n.reported = max(n.cached, cached), n.reported || found
			s.Skip()
		default:
			s.Skip()
		}
	}
	if s.Fault == 0 {
		*u = n
	}
}

// take adds the counts of a reply or an event of api, of any API if that is nil.
func (u *counts) take(a api, m *members) {
	if a == nil {
		a = claimed(m)
	}
	if a != nil {
		a.usage(m, u)
		return
	}
	u.member(m, "usage")
	u.nested(m, "message")
	u.nested(m, "response")
}
