package vllmtest

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// fixedReply answers without looking at the prompt.
type fixedReply struct {
	rep     reply
	head    *replyHead
	text    []byte
	streams map[string]*fixedStream
	bufs    sync.Pool // *[]byte
}

// fixedStream is a stream but for its first and last parts, which have the usage.
type fixedStream struct {
	middle []byte
	pieces []int // ends of the pieces of text in middle
}

func newFixedReply(cfg *Config) *fixedReply {
	x := &fixedReply{
		rep:     newReply(nil, cfg.ReplyTokens, cfg.ReplyTokens, false, false),
		streams: make(map[string]*fixedStream),
		bufs:    sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }},
	}
	x.text = x.rep.appendText(nil, 0, x.rep.words)
	x.head = (&Server{}).head(cfg.modelName())
	for path, f := range formats {
		st := new(fixedStream)
		for i := range x.rep.words {
			st.middle = f.delta(st.middle, x.head, 0, x.rep.appendText(nil, i, i+1))
			st.pieces = append(st.pieces, len(st.middle))
		}
		st.middle = f.finish(st.middle, x.head, 0, x.rep.finishReason())
		x.streams[path] = st
	}
	return x
}

// hasTrue reports whether b holds the member "name": true. A quote inside a JSON string
// is escaped, so key, which begins and ends with a quote, hardly occurs in a text.
func hasTrue(b []byte, key string) bool {
	for {
		i := bytes.Index(b, []byte(key))
		if i < 0 {
			return false
		}
		b = bytes.TrimLeft(b[i+len(key):], " \t\r\n")
		if v, ok := bytes.CutPrefix(b, []byte(":")); ok {
			return bytes.HasPrefix(bytes.TrimLeft(v, " \t\r\n"), []byte("true"))
		}
	}
}

func (x *fixedReply) serve(
	s *Server, w http.ResponseWriter, r *http.Request, g *generation, path string, f *format, fault Faults,
) error {
	buf := x.bufs.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 1<<20 {
			x.bufs.Put(buf)
		}
	}()
	raw, err := s.readBody(w, r, (*buf)[:0])
	*buf = raw[:0]
	if err != nil {
		return err
	}
	u := usage{prompt: (len(raw) + pieceBytes - 1) / pieceBytes, output: x.rep.tokens()}
	stream := hasTrue(raw, `"stream"`)
	head := *x.head
	head.includeUsage = stream && hasTrue(raw, `"include_usage"`)
	if d := s.cfg.Delay; d > 0 {
		if fault.Slow > 0 {
			d = time.Duration(min(float64(d)*fault.Slow, float64(24*time.Hour)))
		}
		if !g.sleep(r.Context(), d) {
			panic(http.ErrAbortHandler)
		}
	}
	s.n.promptTokens.Add(uint64(u.prompt))
	s.n.outputTokens.Add(uint64(u.output))
	// The body has been used: its buffer takes the reply.
	b := raw[:0]
	if !stream {
		b = f.whole(b, &head, []choice{{text: x.text, reason: x.rep.finishReason()}}, u)
		*buf = b
		w.Header().Set("Content-Type", "application/json")
		writeBody(w, b, fault.CutAfter > 0)
		return nil
	}
	st := x.streams[path]
	b = f.open(b, &head, u)
	cut := fault.CutAfter > 0 && fault.CutAfter <= len(st.pieces)
	if cut {
		b = append(b, st.middle[:st.pieces[fault.CutAfter-1]]...)
	} else {
		b = f.close(append(b, st.middle...), &head, u, x.rep.finishReason())
	}
	*buf = b
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("Transfer-Encoding", "chunked") // no length is sent, as with a real stream, and no flush is needed for that
	_, err = w.Write(b)
	if cut && err == nil {
		_ = http.NewResponseController(w).Flush()
	}
	if cut || err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
