package vllmtest

import (
	"net/http"
	"strconv"
)

// output writes one simulated reply.
type output struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	g        *generation
	f        *format
	job      *job
	seqs     []*seq
	head     *replyHead
	cutAfter int
}

// wait returns when q has more than seen tokens. It ends the handler if the
// client or the generation ends.
func (o *output) wait(q *seq, seen int) (produced, cached int) {
	for {
		n, c, ended := q.engine.progress(q)
		if n > seen {
			return n, c
		}
		if ended { // aborted
			panic(http.ErrAbortHandler)
		}
		select {
		case <-q.wake:
		case <-o.r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-o.g.ended:
			panic(http.ErrAbortHandler)
		}
	}
}

// stream writes the choices one after the other. Tokens that have come since
// the last write go out in one piece, as vLLM merges them.
func (o *output) stream() {
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	rc := http.NewResponseController(o.w)
	write := func(b []byte) {
		if _, err := o.w.Write(b); err != nil {
			panic(http.ErrAbortHandler)
		}
		if rc.Flush() != nil {
			panic(http.ErrAbortHandler)
		}
	}
	o.w.WriteHeader(http.StatusOK)
	write(nil) // vLLM too sends the header before the first token is there

	var b, text []byte
	var u usage
	pieces := 0
	for i, q := range o.seqs {
		rep := &o.job.replies[i]
		for seen := 0; seen < q.want; {
			n, cached := o.wait(q, seen)
			if o.cutAfter > 0 {
				n = seen + 1 // so that the place of the cut does not depend on timing
			}
			b = b[:0]
			if seen == 0 {
				u.prompt += q.prompt
				u.cached += cached
				if i == 0 {
					b = o.f.open(b, o.head, u)
				}
			}
			o.head.ids.produced(rep, seen, n)
			if text = rep.appendText(text[:0], seen, n); len(text) > 0 {
				b = o.f.delta(b, o.head, i, text)
				pieces++
			}
			u.output += n - seen
			seen = n
			if o.cutAfter > 0 && pieces >= o.cutAfter {
				write(b)
				panic(http.ErrAbortHandler)
			}
			if n == q.want {
				_ = o.s.hand(o.g, q)
				b = o.f.finish(b, o.head, i, rep.finishReason())
				if i == len(o.seqs)-1 {
					b = o.f.close(b, o.head, u, rep.finishReason())
				}
			}
			write(b)
		}
	}
}

func (o *output) whole() {
	var u usage
	choices := make([]choice, len(o.seqs))
	for i, q := range o.seqs {
		rep := &o.job.replies[i]
		n, cached := o.wait(q, q.want-1)
		u.prompt += q.prompt
		u.cached += cached
		u.output += n
		o.head.ids.whole(rep, n)
		choices[i] = choice{text: rep.appendText(nil, 0, n), reason: rep.finishReason()}
	}
	b := o.f.whole(nil, o.head, choices, u)
	for _, q := range o.seqs {
		if params := o.s.hand(o.g, q); params != nil {
			b = append(append(append(b[:len(b)-1], `,"kv_transfer_params":`...), params...), '}')
		}
	}
	o.w.Header().Set("Content-Type", "application/json")
	writeBody(o.w, b, o.cutAfter > 0)
}

// writeBody writes a reply of known length, half of it if it is to be cut.
func writeBody(w http.ResponseWriter, b []byte, cut bool) {
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	if cut {
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if _, err := w.Write(b); err != nil {
		panic(http.ErrAbortHandler)
	}
}
