package tokenmemo

import (
	"bytes"

	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/internal/sse"
	"github.com/warmroute/router/membudget"
)

// DefaultReply is the greatest reply, or event of a stream, in bytes that
// the zero Reply reads.
const DefaultReply = 8 << 20

// maxReplyIDs bounds the ids of one reply.
const maxReplyIDs = 1 << 22

// Reply collects the ids that an engine returns in a reply to a chat
// completion or a completion with return_token_ids, as it passes by: one JSON
// object or a stream of server-sent events. The zero Reply is ready to use,
// for one reply; its methods are not safe for concurrent use.
type Reply struct {
	// Limit bounds the bytes that are held of a JSON reply, or of the data of one event of a stream; beyond it
	// nothing is known of the reply. 0 and less: DefaultReply. It is set before the first Write.
	Limit int
	// Memory has the bytes that are kept of the reply, beyond 16 KiB; nil: they are bounded for each reply alone. If it
	// has no more, nothing is known of the reply. It is set before the first Write. Close releases the bytes.
	Memory *membudget.Account

	memory membudget.Hold
	idsOf  int64 // bytes of memory for ids
	form   replyForm
	raw    []byte // of a JSON reply
	events sse.Reader
	bad    bool

	prompt, output []uint32
	several        bool // one other than the first was seen
	ended          bool // by itself
	done           bool
}

type replyForm uint8

const (
	formUnknown replyForm = iota
	formJSON
	formStream
)

// Write takes the next bytes of the reply's body, cut anywhere. It keeps no
// reference to b, always takes all of it and never fails.
func (r *Reply) Write(b []byte) (int, error) {
	n := len(b)
	if r.form == formUnknown {
		b = bytes.TrimLeft(b, " \t\r\n\ufeff")
		if len(b) == 0 {
			return n, nil
		}
		r.memory = r.Memory.Hold()
		if r.Memory != nil {
			r.events.Grow = r.memory.Grow
		}
		r.form = formStream
		if b[0] == '{' {
			r.form = formJSON
		}
	}
	switch {
	case r.bad:
	case r.form == formJSON && len(r.raw)+len(b) > r.limit():
		r.spoil()
	case r.form == formJSON:
		if r.raw = r.memory.Grow(r.raw, len(b), r.limit()); cap(r.raw)-len(r.raw) < len(b) {
			r.spoil()
			break
		}
		r.raw = append(r.raw, b...)
	default:
		r.events.Max = r.limit()
		r.events.Write(b, r.event, nil)
	}
	return n, nil
}

func (r *Reply) limit() int {
	if r.Limit <= 0 {
		return DefaultReply
	}
	return r.Limit
}

// spoil drops all that is held: nothing is known.
func (r *Reply) spoil() {
	r.memory.Release()
	*r = Reply{Limit: r.Limit, Memory: r.Memory, form: r.form, bad: true}
}

// Close drops what is kept and gives its memory back. No other method is to be called after it; it may be called again.
func (r *Reply) Close() { r.spoil() }

// charge has memory for the ids that an object of n bytes may add to those that are there, 4 bytes for each 2 of it and
// twice that while they are copied, and reports whether there is any.
func (r *Reply) charge(n int) bool {
	if r.Memory == nil {
		return true
	}
	now := 4*int64(cap(r.prompt)+cap(r.output)) + 4*int64(n)
	if n < membudget.Spare/4 && now < membudget.Spare {
		return true
	}
	if r.memory.Add(now-r.idsOf) != nil {
		return false
	}
	r.idsOf = now
	return true
}

// event takes the data of an event.
func (r *Reply) event(data []byte, whole bool) {
	switch {
	case r.bad:
	case !whole:
		r.spoil()
	case string(data) == "[DONE]":
		r.done = true
	default:
		r.object(data)
	}
}

// Tokens returns the ids of the prompt, and those of the output if there was
// one choice and it ended by itself, its last token included. They are nil if
// they are not known with certainty; of a stream, too, that has not come to its
// end.
func (r *Reply) Tokens() (prompt, output []uint32) {
	if r.form == formJSON && !r.done && !r.bad {
		r.done = true
		r.object(r.raw)
		r.raw = nil
	}
	if r.bad || !r.done {
		return nil, nil
	}
	if r.ended && !r.several {
		output = r.output
	}
	return r.prompt, output
}

// object reads a JSON reply or an event.
func (r *Reply) object(b []byte) {
	if !r.charge(len(b)) {
		r.spoil()
		return
	}
	s := jsonscan.Scanner{B: b}
	if s.Peek() != '{' {
		r.spoil()
		return
	}
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		switch string(k) {
		case "prompt_token_ids":
			r.promptIDs(&s)
		case "choices":
			r.choicesOf(&s)
		default:
			s.Skip()
		}
	}
	if s.End(); s.Fault != 0 {
		r.spoil()
	}
	r.charge(0)
}

func (r *Reply) choicesOf(s *jsonscan.Scanner) {
	if s.Peek() != '[' {
		s.Skip()
		return
	}
	for ok := s.FirstElem(); ok; ok = s.NextElem() {
		if s.Peek() != '{' {
			s.Skip()
			continue
		}
		var output []uint32
		for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
			switch string(k) {
			case "index":
				s.Peek()
				if string(s.Scalar(s.Peek())) != "0" {
					r.several = true
				}
			case "prompt_token_ids":
				r.promptIDs(s)
			case "token_ids":
				output = r.ids(s)
			case "finish_reason":
				if s.Peek() == '"' {
					v, plain := s.Raw()
					if !plain {
						s.Skip()
					}
					r.ended = plain && (string(v) == "stop" || string(v) == "tool_calls")
				} else {
					s.Skip()
				}
			case "stop_reason":
				// A stop string cuts the output in the midst of a turn.
				if s.Peek() == '"' {
					r.several = true
				}
				s.Skip()
			default:
				s.Skip()
			}
		}
		if len(r.output)+len(output) > maxReplyIDs {
			r.spoil()
			return
		}
		r.output = append(r.output, output...)
	}
}

// promptIDs reads the ids of the prompt. Those of several prompts are not known.
func (r *Reply) promptIDs(s *jsonscan.Scanner) {
	if s.Null() {
		return
	}
	ids := r.ids(s)
	if r.prompt != nil && !equalIDs(r.prompt, ids) {
		r.spoil()
		return
	}
	r.prompt = ids
}

// ids reads an array of ids, nil if it is none.
func (r *Reply) ids(s *jsonscan.Scanner) []uint32 {
	if s.Peek() != '[' {
		if !s.Null() {
			s.Skip()
			r.bad = true
		}
		return nil
	}
	ids := []uint32{}
	for ok := s.FirstElem(); ok; ok = s.NextElem() {
		c := s.Peek()
		if c < '0' || c > '9' {
			r.bad = true
			s.Skip()
			continue
		}
		id, ok := jsonscan.Uint32(s.Scalar(c))
		if !ok || len(ids) == maxReplyIDs {
			r.bad = true
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
