package httpproxy

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/membudget"
)

// ServeHTTP answers a request with the reply of a target. An error of the Proxy's own is an object of JSON as clients
// of the OpenAI API know it. It forwards every path: put a mux before it if clients must not reach all of an engine.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.proxy.ServeHTTP(w, r) }

// ServeError answers with the error of a RoundTrip. It fits httputil.ReverseProxy.ErrorHandler.
func (p *Proxy) ServeError(w http.ResponseWriter, r *http.Request, err error) {
	p.cfg.Error(r, err)
	if r.Context().Err() != nil {
		return // nobody listens
	}
	status, wait, message := StatusOf(err)
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10))
	}
	var offers interface{ AcceptEncoding() string }
	if status == http.StatusUnsupportedMediaType && errors.As(err, &offers) {
		w.Header().Set("Accept-Encoding", offers.AcceptEncoding())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"error":{"message":"`+message+`","type":"gateway_error","code":`+strconv.Itoa(status)+"}}\n")
}

// StatusOf returns the HTTP status that answers an error of RoundTrip, the time of a Retry-After (0: none), and a
// message for clients, which quotes nothing of the error.
func StatusOf(err error) (status int, wait time.Duration, message string) {
	var none *router.NoTargetError
	var bad *bodyError
	var coded interface{ StatusCode() int }
	var large *http.MaxBytesError
	var shed *membudget.Error
	switch {
	case errors.As(err, &shed):
		return shed.StatusCode(), shed.RetryAfter(), shed.Message()
	case errors.Is(err, ErrTooLarge), errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, 0, "the request body is too large"
	case errors.Is(err, ErrBusy):
		return http.StatusServiceUnavailable, time.Second, "too many requests at once"
	case errors.As(err, &bad) && errors.As(err, &coded) && coded.StatusCode() >= 400 && coded.StatusCode() <= 499:
		return coded.StatusCode(), 0, "the request body cannot be decoded"
	case errors.As(err, &bad):
		return http.StatusBadRequest, 0, "the request body cannot be read"
	case errors.As(err, &none):
		return none.Status(), max(none.RetryAfter, time.Second), "no engine is ready"
	case errors.Is(err, router.ErrAttemptTimeout), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, 0, "the engine did not answer in time"
	}
	return http.StatusBadGateway, 0, "the engine could not be reached or broke off"
}
