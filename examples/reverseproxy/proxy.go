package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// transport is the Transport of a httputil.ReverseProxy. It sends each request to
// the replica that can answer soonest, and to another one if that fails before
// the first byte of its reply.
type transport struct {
	*router.Router                   // Target.Ref is the replica's *url.URL
	next           http.RoundTripper // sends
}

// RoundTrip sends one request, with all its attempts. Its Body is not nil. If
// it does not return, the end of the request's context settles the lease.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	p, _ := prompt.FromRequest(req.URL.Path, req.Header, body) // not understood: routed and counted all the same
	l, err := t.Route(req.Context(), p)
	for err == nil {
		out := req.Clone(req.Context())
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		(&httputil.ProxyRequest{Out: out}).SetURL(l.Decision().Target.Ref.(*url.URL))
		resp, failed := t.next.RoundTrip(out)
		o := router.Outcome{Err: failed}
		if failed == nil {
			r := &reply{lease: l, status: resp.StatusCode, header: resp.Header, text: prompt.ReplyTo(req.URL.Path, p)}
			if resp.StatusCode < 100 {
				o.Err = fmt.Errorf("the replica's status is %03d", resp.StatusCode) // net/http would panic
			} else if o = r.text.Hold(resp); o.Err == nil && o.Status < 400 {
				l.FirstToken()
				r.ReadCloser, resp.Body = resp.Body, r
				return resp, nil
			}
		}
		l, err = l.Retry(req.Context(), o) // settles, waits a little, takes a replica not tried yet
		if err != nil && o.Status != 0 {
			return resp, nil // there is none, or a 4xx: the replica's own words
		} else if failed == nil {
			resp.Body.Close()
		}
	}
	return nil, err
}

// reply is a reply's body. Its end settles the lease.
type reply struct {
	io.ReadCloser
	lease  *router.Lease
	status int
	header http.Header
	text   prompt.Reply // is cached too, and begins the next turn
}

func (r *reply) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.lease.Made(r.text.Made()...) // the client may use an id as soon as it has it
	if err != nil {
		r.lease.Done(r.text.Outcome(r.status, r.header))
	}
	return n, err
}

func (r *reply) Close() error {
	o := r.text.Outcome(r.status, r.header)
	o.Stage = router.Canceled
	r.lease.Done(o) // nothing, if the end was read
	return r.ReadCloser.Close()
}
