package disagg

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/errclass"
	"github.com/warmroute/router/prompt"
)

// maxReply bounds the bytes that are kept of a prefill engine's reply.
const maxReply = 1 << 20

// hopHeaders are of the client's own connection, or of its body as it came.
var hopHeaders = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Content-Length", "Content-Encoding", "Content-Digest", "Content-Md5", "Digest",
	"Accept-Encoding", "Expect",
}

// post sends body to the prefill target of pl and returns its reply and a final outcome.
func (q *request) post(ctx context.Context, pl *router.Lease, body []byte) (*PrefillError, router.Outcome) {
	c := &q.s.cfg
	t := pl.Decision().Target
	sent, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if c.PrefillTimeout >= 0 {
		timer := time.AfterFunc(c.PrefillTimeout, func() { cancel(errSilent) })
		defer timer.Stop()
	}
	broke := func(status int, err error) (*PrefillError, router.Outcome) {
		switch cause := context.Cause(sent); {
		case cause == errServed:
			return nil, router.Outcome{Stage: router.Finished, Status: status}
		case cause == errSilent: // it may compute still, but another one shall
			return nil, router.Outcome{Stage: router.Failed, Err: errSilent}
		case context.Cause(ctx) != nil:
			return nil, router.Outcome{Stage: router.Canceled, Err: context.Cause(ctx)}
		}
		return nil, router.Outcome{Stage: router.Failed, Status: status, Err: err}
	}
	base, err := c.URL(t)
	if err != nil {
		return broke(0, err)
	}
	if c.Rewrite != nil {
		body = c.Rewrite(ctx, t, body)
	}
	req, err := http.NewRequestWithContext(sent, http.MethodPost, base.JoinPath(q.Path).String(), bytes.NewReader(body))
	if err != nil {
		return broke(0, err)
	}
	req.Header = q.Header.Clone()
	for _, k := range hopHeaders {
		req.Header.Del(k)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Prepare != nil {
		c.Prepare(req, t)
	}
	resp, err := c.Transport.RoundTrip(req)
	if err != nil {
		return broke(0, errclass.Wrap(err))
	}
	defer resp.Body.Close()
	rep := prompt.ReplyTo(q.Path, q.prompt)
	rep.Memory = c.Memory
	defer rep.Close()
	var kept bytes.Buffer
	buf := make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(buf)
		_, _ = rep.Write(buf[:n])
		kept.Write(buf[:min(n, maxReply-kept.Len())])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return broke(0, errclass.Wrap(err))
		}
	}
	o := rep.Outcome(resp.StatusCode, resp.Header)
	o.Reply, o.Made = "", nil // the decode target makes the reply
	return &PrefillError{Status: resp.StatusCode, Header: resp.Header, Body: kept.Bytes()}, o.Settled()
}

// refuses reports whether e, which may be nil, is a reply that any other prefill target would give too.
func (e *PrefillError) refuses() bool {
	if e == nil {
		return false
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout,
		http.StatusTooManyRequests:
		return false
	}
	return e.Status >= 400 && e.Status <= 499
}
