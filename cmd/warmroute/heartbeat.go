package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/prompt"
)

// comment is a line of a stream that its readers skip.
const comment = ": waiting for the engine\n\n"

// heartbeat keeps the connection to a client of a stream alive before the first token: a prefill can take longer than
// proxies and clients wait. From the first comment on the status and the headers are sent, so no other target takes
// over, and an error is an event of the stream. A nil heartbeat does nothing.
type heartbeat struct {
	x     *exchange
	every time.Duration

	mu    sync.Mutex
	timer *time.Timer
	lease *router.Lease
	begun bool // a comment was sent
	over  bool
}

// beats starts a heartbeat if x is to have one: the client asks for a stream.
func (x *exchange) beats() *heartbeat {
	every := x.h.cfg.Heartbeat
	if every <= 0 || !asksStream(x.in.Bytes()) {
		return nil
	}
	delete(x.header, "Accept-Encoding") // comments are not compressed, so the reply must not be
	b := &heartbeat{x: x, every: every, lease: x.lease}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(every, b.beat)
	return b
}

// asksStream reports whether the body asks for a stream of events.
func asksStream(body []byte) bool {
	stream := false
	for key, value := range reqbody.Members(body) {
		if string(key) == "stream" {
			stream = string(body[value.Lo:value.Hi]) == "true"
		}
	}
	return stream
}

func (b *heartbeat) beat() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	c := b.x.client
	if !b.begun {
		b.begun = true
		h := c.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		tellChoice(h, b.lease, b.x.h.cfg.Silent)
		c.arm()
		c.w.WriteHeader(http.StatusOK)
	}
	if _, err := io.WriteString(c, comment); err != nil || c.flush() != nil {
		b.over = true // the client is gone, which ends the request's context
		return
	}
	b.timer.Reset(b.every)
}

// committed reports whether a comment was sent, so that no other target takes over.
func (b *heartbeat) committed() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// moves has the headers of the first comment name another choice.
func (b *heartbeat) moves(l *router.Lease) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lease = l
}

// stop ends the comments and reports whether there were any. The client's writer is the caller's from then on.
func (b *heartbeat) stop() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.timer.Stop()
	return b.begun
}

// maxEvent bounds the body of an error that becomes an event, in bytes.
const maxEvent = 256 << 10

// lost ends a stream that began with comments, after its attempt failed with o.
func (x *exchange) lost(a *attempt, o router.Outcome) {
	x.beat.stop()
	defer a.close()
	if x.split != nil {
		o = x.split.Outcome(o)
	}
	x.lease.Done(o)
	if x.r.Context().Err() != nil {
		return
	}
	d := x.lease.Decision()
	x.h.cfg.Log.Warn("failed after a comment", "path", x.r.URL.Path, "target", d.Target.ID,
		"status", o.Status, "err", o.Err)
	body, free := x.rest(a)
	defer free()
	if len(body) == 0 {
		body = errorBody(http.StatusBadGateway, "the engine could not be reached or broke off")
		if slow(o.Err) {
			body = errorBody(http.StatusGatewayTimeout, "the engine did not answer in time")
		}
	}
	x.event(body, true)
}

// eventBytes is the memory that making an event of a body of maxEvent takes.
const eventBytes = 4 * maxEvent

// rest returns the body of the attempt's reply, as far as maxEvent; without memory for it, nothing. Its memory is held
// until free is called.
func (x *exchange) rest(a *attempt) (body []byte, free func()) {
	if x.h.replies.Reserve(eventBytes) != nil {
		return nil, func() {}
	}
	return a.rest(), func() { x.h.replies.Release(eventBytes) }
}

func (a *attempt) rest() []byte {
	var b bytes.Buffer
	if a.buf != nil {
		b.Write(a.buf.read[:a.n])
	}
	if a.resp != nil && a.end == nil {
		_, _ = io.Copy(&b, io.LimitReader(a.resp.Body, maxEvent-int64(b.Len()))) // what came is all there is
	}
	return bytes.TrimSpace(b.Bytes())
}

// whole passes on a reply that is no stream, behind comments: an error of the engine, or an answer in one piece.
func (x *exchange) whole(a *attempt) {
	body, free := x.rest(a)
	defer free()
	o := router.Outcome{Status: a.resp.StatusCode}
	if m := x.newMeter(a.resp); m.reply != nil {
		defer m.close()
		m.observe(body)
		m.report(&o, a.resp.Header)
	}
	x.lease.Done(o)
	if len(body) == 0 {
		body = errorBody(a.resp.StatusCode, http.StatusText(a.resp.StatusCode))
	}
	x.event(body, a.resp.StatusCode >= 400)
}

// event writes one event with body as its data. One of an error has the name that clients of the messages API know.
func (x *exchange) event(body []byte, failed bool) {
	var line bytes.Buffer
	if json.Compact(&line, body) != nil {
		line.Reset()
		line.Write(errorBody(http.StatusBadGateway, strings.ToValidUTF8(string(body[:min(len(body), 1<<10)]), "?")))
	}
	name := ""
	if failed && prompt.APIOf(x.r.URL.Path) == "messages" {
		name = "event: error\n"
	}
	x.client.arm()
	_, _ = io.WriteString(x.client, name+"data: "+line.String()+"\n\n") // the client may be gone
	_ = x.client.flush()
}
