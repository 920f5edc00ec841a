package prompt

import "bytes"

// DefaultTokenReply is the greatest reply, or event of a stream, in bytes that
// the zero TokenReply reads.
const DefaultTokenReply = 8 << 20

// maxReplyIDs bounds the ids of one reply.
const maxReplyIDs = 1 << 22

// TokenReply collects the ids that an engine returns in a reply to a chat
// completion or a completion with return_token_ids, as it passes by: one JSON
// object or a stream of server-sent events. The zero TokenReply is ready to use,
// for one reply; its methods are not safe for concurrent use.
type TokenReply struct {
	// Limit bounds what is held of a JSON reply, or of one event of a stream, in
	// bytes; beyond it nothing is known of the reply. 0 and less:
	// DefaultTokenReply. It is set before the first Write.
	Limit int

	form replyForm
	raw  []byte // JSON: all of it; a stream: the line that has not ended
	data []byte // the data lines of the event that has not ended
	bad  bool

	prompt, output []uint32
	several        bool // one other than the first was seen
	ended          bool // by itself
	done           bool
}

// Write takes the next bytes of the reply's body, cut anywhere. It keeps no
// reference to b, always takes all of it and never fails.
func (r *TokenReply) Write(b []byte) (int, error) {
	n := len(b)
	if r.form == formUnknown {
		b = bytes.TrimLeft(b, " \t\r\n\ufeff")
		if len(b) == 0 {
			return n, nil
		}
		r.form = formStream
		if b[0] == '{' {
			r.form = formJSON
		}
	}
	if r.bad {
		return n, nil
	}
	if r.form == formJSON {
		r.raw = r.hold(r.raw, b)
		return n, nil
	}
	for !r.bad {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			r.raw = r.hold(r.raw, b)
			break
		}
		line := b[:i]
		if len(r.raw) > 0 {
			r.raw = r.hold(r.raw, line)
			line = r.raw
		} else if len(line) > r.limit() {
			r.spoil()
		}
		if r.bad {
			break
		}
		r.line(bytes.TrimSuffix(line, []byte("\r")))
		r.raw, b = r.raw[:0], b[i+1:]
	}
	return n, nil
}

// hold appends b to dst within the limit.
func (r *TokenReply) hold(dst, b []byte) []byte {
	if len(dst)+len(b) > r.limit() {
		r.spoil()
		return nil
	}
	return append(dst, b...)
}

func (r *TokenReply) limit() int {
	if r.Limit <= 0 {
		return DefaultTokenReply
	}
	return r.Limit
}

func (r *TokenReply) spoil() { *r = TokenReply{Limit: r.Limit, form: r.form, bad: true} }

// line takes a line of a stream.
func (r *TokenReply) line(b []byte) {
	if len(b) > 0 {
		if v, ok := bytes.CutPrefix(b, []byte("data:")); ok {
			if len(r.data) > 0 {
				r.data = append(r.data, '\n')
			}
			r.data = r.hold(r.data, bytes.TrimPrefix(v, []byte(" ")))
		}
		return
	}
	data := r.data
	r.data = r.data[:0]
	switch {
	case len(data) == 0:
	case string(data) == "[DONE]":
		r.done = true
	default:
		r.object(data)
	}
}

// Tokens returns the ids of the prompt, and those of the output where there was
// one choice and it ended by itself, its last token included. They are nil where
// they are not known with certainty; of a stream, too, that has not come to its
// end.
func (r *TokenReply) Tokens() (prompt, output []uint32) {
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
func (r *TokenReply) object(b []byte) {
	s := scanner{b: b}
	if s.peek() != '{' {
		r.spoil()
		return
	}
	for k, ok := s.firstKey(); ok; k, ok = s.nextKey() {
		switch string(k) {
		case "prompt_token_ids":
			r.promptIDs(&s)
		case "choices":
			r.choicesOf(&s)
		default:
			s.skip()
		}
	}
	if s.end(); s.err != nil {
		r.spoil()
	}
}

func (r *TokenReply) choicesOf(s *scanner) {
	if s.peek() != '[' {
		s.skip()
		return
	}
	for ok := s.firstElem(); ok; ok = s.nextElem() {
		if s.peek() != '{' {
			s.skip()
			continue
		}
		var output []uint32
		for k, ok := s.firstKey(); ok; k, ok = s.nextKey() {
			switch string(k) {
			case "index":
				s.peek()
				if string(s.scalar(s.peek())) != "0" {
					r.several = true
				}
			case "prompt_token_ids":
				r.promptIDs(s)
			case "token_ids":
				output = r.ids(s)
			case "finish_reason":
				if s.peek() == '"' {
					v, plain := s.raw()
					if !plain {
						s.skip()
					}
					r.ended = plain && (string(v) == "stop" || string(v) == "tool_calls")
				} else {
					s.skip()
				}
			case "stop_reason":
				// A stop string cuts the output in the midst of a turn.
				if s.peek() == '"' {
					r.several = true
				}
				s.skip()
			default:
				s.skip()
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
func (r *TokenReply) promptIDs(s *scanner) {
	if s.null() {
		return
	}
	ids := r.ids(s)
	if r.prompt != nil && !equalIDs(r.prompt, ids) {
		r.spoil()
		return
	}
	r.prompt = ids
}

// ids reads an array of ids, nil where it is none.
func (r *TokenReply) ids(s *scanner) []uint32 {
	if s.peek() != '[' {
		if !s.null() {
			s.skip()
			r.bad = true
		}
		return nil
	}
	ids := []uint32{}
	for ok := s.firstElem(); ok; ok = s.nextElem() {
		c := s.peek()
		if c < '0' || c > '9' {
			r.bad = true
			s.skip()
			continue
		}
		id, ok := parseID(s.scalar(c))
		if !ok || len(ids) == maxReplyIDs {
			r.bad = true
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
