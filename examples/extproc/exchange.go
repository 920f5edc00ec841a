package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

var (
	errBusy  = errors.New("too many requests at once")
	errLarge = errors.New("the request body is too large")
	errEnvoy = errors.New("the endpoint gave no reply")
	errAlone = errors.New("ended by Envoy before the end of the reply: the client or the endpoint has gone, " +
		"or an answer took longer than message_timeout")
)

// exchange is one HTTP request, from its headers to the end of its reply.
type exchange struct {
	p    *Processor
	ctx  context.Context
	mode *extproc.ProtocolConfiguration // nil from an old Envoy

	path   string
	header http.Header
	hint   hint
	body   []byte // of a FULL_DUPLEX_STREAMED request, until it goes on
	held   int64  // this exchange's part of Processor.bodies

	bytes, asked, replied membudget.Hold // of the bodies, the prompt and the reply

	routed bool
	named  []string      // the endpoints that were sent to Envoy
	lease  *router.Lease // on the one that is believed to serve; nil: none was named
	reply  reply
}

// end leaves nothing counted. If the reply has not ended by now, the client
// disconnected, the endpoint broke off, or Envoy goes on without the processor
// because an answer took too long: Envoy does not say which, so no endpoint is
// blamed.
func (x *exchange) end() {
	if x.lease != nil {
		x.lease.Done(router.Outcome{Stage: router.Canceled, Status: x.reply.status, Err: errAlone})
	}
	x.p.bodies.Add(-x.held)
	x.bytes.Release()
	x.asked.Release()
	x.replied.Release()
	x.reply.text.Close()
}

func (x *exchange) duplex(mode filter.ProcessingMode_BodySendMode) bool {
	return mode == filter.ProcessingMode_FULL_DUPLEX_STREAMED
}

// handle answers one message. An error is for Processor.refuse.
func (x *exchange) handle(in *extproc.ProcessingRequest) ([]*extproc.ProcessingResponse, error) {
	if x.mode == nil {
		x.mode = in.GetProtocolConfig()
	}
	x.hint.read(in.GetMetadataContext())
	switch m := in.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		return x.requestHeaders(m.RequestHeaders)
	case *extproc.ProcessingRequest_RequestBody:
		return x.requestBody(m.RequestBody)
	case *extproc.ProcessingRequest_RequestTrailers:
		out, err := x.send(true)
		return append(out, requestTrailers()), err
	case *extproc.ProcessingRequest_ResponseHeaders:
		x.responseHeaders(in, m.ResponseHeaders)
		return one(responseHeaders()), nil
	case *extproc.ProcessingRequest_ResponseBody:
		x.responseBody(m.ResponseBody)
		return one(responseBody(m.ResponseBody, x.duplex(x.mode.GetResponseBodyMode()))), nil
	case *extproc.ProcessingRequest_ResponseTrailers:
		x.reply.text.Opaque = x.reply.text.Opaque || !x.reply.seen // Envoy may keep the bodies
		x.finish()
		return one(responseTrailers()), nil
	}
	return nil, nil // an unknown message needs no answer
}

func (x *exchange) requestHeaders(h *extproc.HttpHeaders) ([]*extproc.ProcessingResponse, error) {
	x.header = make(http.Header, len(h.GetHeaders().GetHeaders()))
	for _, v := range h.GetHeaders().GetHeaders() {
		switch s := value(v); v.GetKey() {
		case ":path":
			x.path = s
		default:
			x.header.Add(v.GetKey(), s)
		}
	}
	noBody := h.GetEndOfStream()
	if x.mode != nil {
		switch x.mode.GetRequestBodyMode() {
		case filter.ProcessingMode_NONE, filter.ProcessingMode_STREAMED: // headers can only be changed now
			noBody = true
		}
	}
	switch {
	case noBody:
		pick, err := x.route(nil)
		return one(requestHeaders(pick)), err
	case x.duplex(x.mode.GetRequestBodyMode()):
		return nil, nil // answered when the body is here
	}
	return one(requestHeaders(nil)), nil
}

func (x *exchange) requestBody(b *extproc.HttpBody) ([]*extproc.ProcessingResponse, error) {
	if x.routed {
		return one(requestBody(x.named)), nil
	}
	n := int64(len(b.GetBody()))
	x.held += n
	all := x.p.bodies.Add(n)
	switch {
	case x.held > int64(x.p.cfg.MaxBody):
		return nil, errLarge
	case all > x.p.cfg.MaxBodies:
		return nil, errBusy
	}
	if err := x.bytes.Add(n); err != nil {
		return nil, err
	}
	if x.duplex(x.mode.GetRequestBodyMode()) {
		x.body = append(x.body, b.GetBody()...)
		if !b.GetEndOfStream() {
			return nil, nil
		}
		return x.send(false)
	}
	body, decoded, err := x.decode(b.GetBody())
	if err != nil {
		return nil, err
	}
	pick, err := x.route(body)
	out := requestBody(pick)
	if decoded {
		replaceBody(out, body)
	}
	return one(out), err
}

// decode returns a body without its content codings, and reports whether it had any. Its bytes count as held.
func (x *exchange) decode(body []byte) ([]byte, bool, error) {
	values := x.header.Values("Content-Encoding")
	if !contentcoding.Encoded(values) || len(body) == 0 {
		return body, false, nil
	}
	out, err := x.p.decoder.Decode(x.ctx, values, body)
	if err != nil {
		return nil, false, err
	}
	n := int64(len(out))
	x.held += n
	if x.p.bodies.Add(n) > x.p.cfg.MaxBodies {
		return nil, false, errBusy
	}
	return out, true, x.bytes.Add(n)
}

// send lets a FULL_DUPLEX_STREAMED request go on, once: headers and the body. With
// trailers the body does not end the stream.
func (x *exchange) send(trailers bool) ([]*extproc.ProcessingResponse, error) {
	if x.routed || !x.duplex(x.mode.GetRequestBodyMode()) {
		return nil, nil
	}
	body, decoded, err := x.decode(x.body)
	if err != nil {
		return nil, err
	}
	pick, err := x.route(body)
	head := requestHeaders(pick)
	if decoded {
		removeCoding(head.GetRequestHeaders().GetResponse())
	}
	out := append(one(head), streamed(body, !trailers)...)
	x.body = nil
	return out, err
}

// route chooses the endpoints, best first, for a request with this body. None and
// no error: the request goes on without.
func (x *exchange) route(body []byte) ([]string, error) {
	if x.routed {
		return x.named, nil
	}
	x.routed = true
	r := x.p.router
	if err := x.replied.Set(prompt.ReplyBase); err != nil {
		return nil, err
	}
	// A body that cannot be parsed is routed and counted as well.
	p, err := x.p.cfg.Parser.Within(&x.asked, x.path, x.header, body)
	if errors.Is(err, membudget.ErrShed) {
		return nil, err
	}
	x.header = nil
	ctx := context.WithValue(x.ctx, hintKey{}, &x.hint)
	l, err := r.Route(ctx, p)
	if err != nil {
		if x.p.cfg.PassOn && errors.Is(err, router.ErrNoTarget) {
			return nil, nil
		}
		return nil, err
	}
	x.lease, x.named = l, []string{l.Decision().Target.ID}
	if x.p.cfg.Endpoints > 1 {
		x.hint.explain = true
		others, err := r.Explain(ctx, p)
		if err != nil {
			return x.named, nil // the first one is good without them
		}
		for _, c := range others {
			if len(x.named) == x.p.cfg.Endpoints {
				break
			}
			if c.Target.State == router.Ready && c.Target.ID != x.named[0] {
				x.named = append(x.named, c.Target.ID)
			}
		}
	}
	return x.named, nil
}

func (x *exchange) responseHeaders(in *extproc.ProcessingRequest, h *extproc.HttpHeaders) {
	for _, v := range h.GetHeaders().GetHeaders() {
		x.reply.header(v.GetKey(), value(v))
	}
	if x.lease == nil {
		return
	}
	x.reply.text = prompt.ReplyTo(x.path, x.lease.Decision().Prompt)
	x.reply.text.Memory = x.p.replyMemory
	x.served(endpoint(in), attempts(in))
	if d := attribute(in, "response.code_details").GetStringValue(); d != "" && d != "via_upstream" {
		o := router.Outcome{Stage: router.Canceled, Err: fmt.Errorf("the gateway itself replied: %s", d)}
		switch {
		case strings.Contains(d, "{overflow"): // Envoy's own limits
			o.NotSent = true
		case strings.HasPrefix(d, "upstream_"):
			o.Stage = router.Failed
		}
		x.lease.Done(o)
		return
	}
	if x.reply.status >= 400 || h.GetEndOfStream() {
		x.finish()
	}
}

// served moves the lease to the endpoint that replied, if Envoy reports another
// one than the first. Those named before it have failed, unless Envoy skipped
// them.
func (x *exchange) served(id string, attempts int) {
	last := slices.Index(x.named, id)
	if id == "" || last == 0 {
		return
	}
	p, ctx := x.lease.Decision().Prompt, x.ctx
	failed := router.Outcome{Stage: router.Failed, Err: errEnvoy}
	others := x.named[1:]
	if last > 0 {
		others = x.named[1:last]
	}
	switch {
	case attempts == 1:
		failed, others = router.Outcome{NotSent: true}, nil
	case attempts > 1:
		others = others[:min(attempts-2, len(others))]
	}
	x.lease.Done(failed)
	for _, t := range others {
		if l, err := x.p.router.Assign(ctx, p, t); err == nil {
			l.Done(failed)
		}
	}
	if l, err := x.p.router.Assign(ctx, p, id); err == nil {
		x.lease = l
	}
}

func (x *exchange) responseBody(b *extproc.HttpBody) {
	if len(b.GetBody()) > 0 && x.lease != nil {
		if x.reply.write(b.GetBody()) {
			x.lease.FirstToken()
		}
		x.lease.Made(x.reply.text.Made()...) // the client may use an id as soon as it has it
	}
	if b.GetEndOfStream() {
		x.finish()
	}
}

// finish settles the lease of a reply that came to its end.
func (x *exchange) finish() {
	if x.lease != nil {
		x.lease.Done(x.reply.outcome())
	}
}

func value(h *core.HeaderValue) string {
	if len(h.GetRawValue()) > 0 {
		return string(h.GetRawValue())
	}
	return h.GetValue()
}

func attempts(in *extproc.ProcessingRequest) int {
	return int(attribute(in, "upstream.request_attempt_count").GetNumberValue())
}

func one(m *extproc.ProcessingResponse) []*extproc.ProcessingResponse {
	return []*extproc.ProcessingResponse{m}
}
