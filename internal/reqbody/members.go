package reqbody

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/warmroute/router/internal/jsonscan"
)

// Span is a part of a body, from Lo to before Hi.
type Span struct{ Lo, Hi int }

// Members returns the members of the JSON object that body is: the text of each key, good
// until the next, and the place of its value. There are none after the first mistake.
func Members(body []byte) iter.Seq2[[]byte, Span] {
	return func(yield func(key []byte, value Span) bool) {
		s := jsonscan.Start(body)
		if s.Peek() != '{' {
			return
		}
		for key, ok := s.FirstKey(); ok; key, ok = s.NextKey() {
			s.Peek()
			lo := s.I
			s.Pass()
			if s.I > lo && !yield(key, Span{lo, s.I}) {
				return
			}
		}
	}
}

// KVTransfer returns the members of a request by which engines hand over KV caches to
// each other. They come from a router of disaggregated engines; from a client they name
// hosts that the engine connects to, or end its process. They are vLLM's, SGLang's and
// TensorRT-LLM's. With them are the members that choose a data-parallel rank, by which a
// client could send all of its requests to one.
func KVTransfer() []string {
	return []string{
		"kv_transfer_params", "ec_transfer_params", // vLLM, ChatCompletionRequest and others
		"bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key", // SGLang, GenerateReqInput
		"decode_tp_size", "disagg_prefill_dp_rank",
		"routed_dp_rank", "data_parallel_rank", // SGLang, its newer and older name
		"disaggregated_params", // TensorRT-LLM, CompletionRequest
	}
}

// containers are members with objects that engines take as further parameters of the same
// names: vLLM copies vllm_xargs to SamplingParams.extra_args, which the body of
// /inference/v1/generate has in sampling_params, and reads kv_transfer_params there.
var containers = map[string]bool{"vllm_xargs": true, "extra_args": true, "sampling_params": true, "extra_body": true}

// ErrEncoding is the error of a body in UTF-16 or UTF-32, which engines read and Refused
// does not.
var ErrEncoding = errors.New("the request body is not in UTF-8")

// MemberError reports a member that a client must not set. It is returned by pointer.
type MemberError struct {
	// Name is the member's.
	Name string
}

// Error names the member.
func (e *MemberError) Error() string {
	return fmt.Sprintf("the request has the member %q, which a client must not set", e.Name)
}

// Refused is a set of members that requests must not have. A nil *Refused is empty. It
// is safe for concurrent use.
type Refused struct{ names map[string]bool }

// NewRefused returns the set of names, nil if there are none.
func NewRefused(names ...string) *Refused {
	if len(names) == 0 {
		return nil
	}
	r := &Refused{names: make(map[string]bool)}
	for _, n := range names {
		r.names[n] = true
	}
	return r
}

// Check returns a *MemberError if the JSON object body has a member of the set that is
// not null, or an object in it that engines take as further parameters has, and
// ErrEncoding if it cannot say. It is nil for a body that is no object. It reads body once
// and no further than the first mistake, which engines refuse.
func (r *Refused) Check(body []byte) error {
	if r == nil || len(body) == 0 {
		return nil
	}
	if wide(body) {
		return ErrEncoding
	}
	s := jsonscan.Start(body)
	if s.Peek() != '{' {
		return nil
	}
	if name := r.object(&s, false, 0); name != "" {
		return &MemberError{Name: name}
	}
	return nil
}

// wide reports whether body may be an object in UTF-16 or UTF-32: it begins with a byte
// order mark, or with a zero before or after an ASCII character that an object can begin
// with.
func wide(body []byte) bool {
	if bytes.HasPrefix(body, []byte("\xfe\xff")) || bytes.HasPrefix(body, []byte("\xff\xfe")) {
		return true
	}
	head := body[:min(len(body), 4)]
	first := bytes.TrimLeft(head, "\x00")
	return bytes.IndexByte(head, 0) >= 0 && len(first) > 0 && bytes.IndexByte([]byte("{ \t\r\n"), first[0]) >= 0
}

// maxDepth is how deep within a container is looked. Engines read parameters two deep.
const maxDepth = 8

// object passes the object that is next and returns the name of a refused member of it,
// "" if it has none. Inside a container it looks into all values.
func (r *Refused) object(s *jsonscan.Scanner, inside bool, depth int) string {
	for key, ok := s.FirstKey(); ok; key, ok = s.NextKey() {
		s.Peek()
		switch refused, in := r.names[string(key)], inside || containers[string(key)]; {
		case refused && !bytes.HasPrefix(s.B[s.I:], []byte("null")):
			return string(key)
		case in && depth < maxDepth:
			if found := r.value(s, depth+1); found != "" {
				return found
			}
		default:
			s.Pass()
		}
	}
	return ""
}

// value is object for any value.
func (r *Refused) value(s *jsonscan.Scanner, depth int) string {
	switch c := s.Peek(); {
	case c == '{':
		return r.object(s, true, depth)
	case c == '[' && depth < maxDepth:
		for ok := s.FirstElem(); ok; ok = s.NextElem() {
			if found := r.value(s, depth+1); found != "" {
				return found
			}
		}
	default:
		s.Pass()
	}
	return ""
}
