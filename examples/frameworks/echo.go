// Package frameworks has adapters of a few lines for hosts with a picker and retries of their own: Echo's proxy,
// the selector of Kratos, and gateways that ask for an address and a function to call at the end.
package frameworks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// MaxBody is the greatest number of bytes of a request's body that Echo reads.
const MaxBody = 32 << 20

type echoKey struct{}

type echoState struct {
	body    []byte
	request *router.Request
	lease   *router.Lease
	status  int
}

// Echo is a balancer for Echo's proxy. Use Settle before the proxy, and Response as its ModifyResponse. A target's Ref
// is the *middleware.ProxyTarget. Each retry of Echo's goes to a target that the request was not sent to.
type Echo struct{ Router *router.Router }

// AddTarget returns false: the fleet has the targets.
func (Echo) AddTarget(*middleware.ProxyTarget) bool { return false }

// RemoveTarget returns false: the fleet has the targets.
func (Echo) RemoveTarget(string) bool { return false }

// Next returns the target that NextTarget returns, nil if it returns an error.
func (e Echo) Next(c echo.Context) *middleware.ProxyTarget {
	t, err := e.NextTarget(c)
	if err != nil {
		return nil
	}
	return t
}

// NextTarget returns the target of the request's next attempt. It is an error if Settle did not run before.
func (e Echo) NextTarget(c echo.Context) (*middleware.ProxyTarget, error) {
	s, ok := c.Request().Context().Value(echoKey{}).(*echoState)
	if !ok {
		return nil, errors.New("frameworks: Echo.Settle does not precede the proxy")
	}
	s.end(router.Outcome{Stage: router.Failed, Err: errors.New("frameworks: the attempt failed")}) // if it is a retry
	l, err := s.request.Next(c.Request().Context())
	if err != nil {
		return nil, echo.NewHTTPError(http.StatusServiceUnavailable).SetInternal(err)
	}
	s.lease, s.status = l, 0
	c.Request().Body = io.NopCloser(bytes.NewReader(s.body)) // an attempt before may have read it
	return l.Decision().Target.Ref.(*middleware.ProxyTarget), nil
}

// Settle is a middleware that reads the body, and settles what is left when the reply has been written.
func (e Echo) Settle(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		body, err := io.ReadAll(http.MaxBytesReader(c.Response(), r.Body, MaxBody))
		if err != nil {
			return echo.NewHTTPError(http.StatusRequestEntityTooLarge).SetInternal(err)
		}
		p, _ := prompt.FromRequest(r.URL.Path, r.Header, body) // a prompt with an error can be routed
		s := &echoState{body: body, request: e.Router.Request(p)}
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), echoKey{}, s)))
		err = next(c)
		switch {
		case r.Context().Err() != nil:
			s.end(router.Outcome{Stage: router.Canceled})
		case err != nil && s.status == 0:
			s.end(router.Outcome{Stage: router.Failed, Err: err})
		default:
			s.end(router.Outcome{Status: s.status})
		}
		return err
	}
}

// Response notes the status for Settle. A 5xx, 408 or 429 becomes an error, so that Echo's RetryFilter is asked.
func (Echo) Response(resp *http.Response) error {
	s, ok := resp.Request.Context().Value(echoKey{}).(*echoState)
	if !ok {
		return nil
	}
	s.status = resp.StatusCode
	if (router.Outcome{Status: resp.StatusCode}).Retryable() {
		s.end(router.Outcome{Status: resp.StatusCode})
		return errors.New("frameworks: the target answered " + resp.Status)
	}
	return nil
}

func (s *echoState) end(o router.Outcome) {
	if s.lease != nil {
		s.lease.Done(o)
		s.lease = nil
	}
}
