package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/prompt/tokenmemo"
)

// reply passes a's reply on to the client and settles the lease.
func (x *exchange) reply(a *attempt) {
	defer func() { a.close() }()
	switch begun := x.beat.stop(); {
	case !begun:
		h := x.client.w.Header()
		h.Del(allowOrigin) // who may read the reply is the engine's affair
		copyHeaders(h, a.resp.Header)
		tellChoice(h, x.lease, x.h.cfg.Silent)
		x.client.arm()
		x.client.w.WriteHeader(a.resp.StatusCode)
	case a.resp.StatusCode > 299 || !isStream(a.resp):
		x.whole(a)
		return
	}

	if a.buf == nil {
		a.buf = buffers.Get().(*buffer)
	}
	d := x.lease.Decision()
	m := a.meter
	if m == nil {
		m = x.newMeter(a.resp)
		defer m.close()
	}
	if m.reply != nil && !m.bare {
		m.ids = x.tokens.reader()
		defer x.tokens.release()
		if m.ids != nil {
			m.ids.Write(a.buf.read[:a.n])
		}
	}
	o := x.copy(a, m)
	broke := o.Err != nil
	m.report(&o, a.resp.Header)
	if x.split != nil {
		o = x.split.Outcome(o)
	}
	x.tokens.learn(m.ids, d, &o)
	x.lease.Done(o)
	if broke {
		// The client gets the part that came, and then its connection is cut, so that a
		// reply that broke off does not look complete.
		_ = x.client.flush()
		panic(http.ErrAbortHandler)
	}
}

// copy passes the body on as it comes. The Outcome has an Err if it broke off.
func (x *exchange) copy(a *attempt, m *meter) router.Outcome {
	status := a.resp.StatusCode
	flush := a.resp.ContentLength < 0 || m.sse
	seen := a.meter != nil
	for ; ; seen = false {
		a.timer.Stop()
		if a.n > 0 {
			chunk := a.buf.read[:a.n]
			if m.firstToken(chunk) {
				x.lease.FirstToken()
			}
			if m.state { // the client may send its next request as soon as it knows an id
				if !seen {
					m.observe(chunk)
				}
				x.lease.Made(m.reply.Made()...)
			}
			_, err := x.client.Write(chunk)
			if err == nil && flush && a.end == nil {
				err = x.client.flush()
			}
			if err != nil { // the client's doing, not the target's
				return router.Outcome{Stage: router.Canceled, Status: status, Err: err}
			}
			if !seen && !m.state {
				m.observe(chunk)
			}
		}
		if a.end == io.EOF {
			return router.Outcome{Status: status}
		}
		if a.end != nil {
			o := a.failed(x.classed(a.end))
			o.Status = status
			x.h.cfg.Log.Warn("reply broke off", "path", x.r.URL.Path, "target", x.lease.Decision().Target.ID, "err", o.Err)
			return o
		}
		a.timer.Reset(x.h.cfg.IdleTimeout)
		a.n, a.end = a.resp.Body.Read(a.buf.read[:])
	}
}

// meter learns from a reply as it passes by: when its first token came, its text
// and the engine's own count of tokens. A reply that is no success has neither;
// of a compressed one only the first byte is seen.
type meter struct {
	first bool // the first token was not seen yet
	sse   bool
	line  int // bytes of "data:" matched at the start of this line; -1: none will be

	reply *prompt.Reply    // nil: neither text nor usage is collected
	state bool             // it may make state at the engine
	bare  bool             // only the ids of that are of interest
	ids   *tokenmemo.Reply // nil: the ids are not collected
}

// close gives the memory of m back, which may be nil.
func (m *meter) close() {
	if m == nil {
		return
	}
	if m.reply != nil {
		m.reply.Close()
	}
	if m.ids != nil {
		m.ids.Close()
	}
}

// newMeter returns a meter for resp, the reply to x, within the gateway's memory.
func (x *exchange) newMeter(resp *http.Response) *meter {
	m := newMeter(resp, x.lease.Decision().Prompt, x.r.URL.Path)
	if m.reply != nil {
		m.reply.Memory = x.h.replies
	}
	return m
}

// newMeter returns a meter for resp, the reply to p, which was sent to path.
func newMeter(resp *http.Response, p router.Prompt, path string) *meter {
	m := &meter{}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return m
	}
	m.first = true
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return m
	}
	m.sse = isStream(resp)
	n, _ := p.Length()
	m.state, m.bare = prompt.KeepsState(path), n == 0
	if n > 0 || m.state {
		m.reply = new(prompt.Reply)
	}
	return m
}

// isStream reports whether resp is a stream of events.
func isStream(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}

// firstToken reports, once, that chunk has the reply's first token: its first
// byte, or of an event stream the first data line (comments come earlier, to
// keep the connection alive).
func (m *meter) firstToken(chunk []byte) bool {
	if !m.first {
		return false
	}
	if m.sse && !m.data(chunk) {
		return false
	}
	m.first = false
	return true
}

func (m *meter) data(chunk []byte) bool {
	const field = "data:"
	for _, c := range chunk {
		switch {
		case c == '\n' || c == '\r':
			m.line = 0
		case m.line < 0:
		case c == field[m.line]:
			if m.line++; m.line == len(field) {
				return true
			}
		default:
			m.line = -1
		}
	}
	return false
}

// observe takes the next bytes of the body.
func (m *meter) observe(chunk []byte) {
	if m.reply == nil {
		return
	}
	m.reply.Write(chunk) // never fails
	if m.ids != nil {
		m.ids.Write(chunk)
	}
}

// report puts into o what was learned of a reply with these headers.
func (m *meter) report(o *router.Outcome, h http.Header) {
	if m.reply == nil {
		return
	}
	l := m.reply.Outcome(o.Status, h)
	if m.bare { // a text would be learned behind an empty prompt, and counts were counted before
		o.Made, o.Streamed = l.Made, l.Streamed
		return
	}
	if o.Err != nil || o.Stage != 0 {
		l.Stage, l.Status, l.Err = o.Stage, o.Status, o.Err
	}
	l.RetryAfter, l.Lacking = o.RetryAfter, o.Lacking
	*o = l
}
