package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/membudget"
)

// own answers the requests for the gateway itself, and reports whether r is one.
func (h *Handler) own(w http.ResponseWriter, r *http.Request) bool {
	s := h.cfg.service
	switch path := r.URL.Path; {
	case path == "/healthz" || path == "/health":
		h.health(w, "")
	case path == "/readyz":
		h.health(w, h.unready())
	case path == "/livez":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	case path == metricsPath && !h.cfg.Silent:
		h.serveMetrics(w, r)
	case path == debugPath && s.live == nil && !h.cfg.Silent && s.counts():
		serveDebug(w, r, s.page())
	case r.Method == http.MethodOptions: // an engine answers for the methods and the origins
		return false
	case path == modelsPath && s.named():
		s.listModels(w, r)
	case strings.HasPrefix(path, modelsPath+"/") && s.named():
		s.showModel(w, r, strings.TrimPrefix(path, modelsPath+"/"))
	default:
		return false
	}
	return true
}

// openPaths returns the patterns of the flags and the file in place.
func (h *Handler) openPaths() []string {
	if more := h.cfg.service.gateway.File().Requests.OpenPaths; len(more) > 0 {
		return append(more[:len(more):len(more)], h.cfg.OpenPaths...)
	}
	return h.cfg.OpenPaths
}

const allowOrigin = "Access-Control-Allow-Origin"

// crossOrigin lets a page of another origin read the gateway's own answers, as vLLM does with its own by default. They
// do not depend on a cookie. The replies of engines have the engines' own headers.
func crossOrigin(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" {
		w.Header().Set(allowOrigin, "*")
	}
}

// unready returns why no request could be served; "": some could.
func (h *Handler) unready() string {
	for _, m := range h.cfg.service.gateway.View().Snapshot() {
		if m.Target.State == router.Ready || m.Target.State == router.Full {
			return ""
		}
	}
	return "no target is ready"
}

// health answers for the gateway itself, not for the engines behind it: 503 if it drains, or for another reason why.
func (h *Handler) health(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if h.draining.Load() {
		why = "draining"
	}
	if why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, why)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (h *Handler) refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	// The rest of the body is not read.
	w.Header().Set("Connection", "close")
	var timeout net.Error
	var shed *membudget.Error
	switch {
	case errors.As(err, &shed):
		refuse(w, shed.StatusCode(), shed.RetryAfter(), shed.Message())
	case errors.Is(err, contentcoding.ErrUnsupported):
		w.Header().Set("Accept-Encoding", contentcoding.Supported())
		refuse(w, http.StatusUnsupportedMediaType, 0, err.Error())
	case errors.Is(err, contentcoding.ErrMalformed):
		refuse(w, http.StatusBadRequest, 0, err.Error())
	case errors.Is(err, contentcoding.ErrTooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, 0,
			err.Error()+": more than "+strconv.FormatInt(h.cfg.MaxBody, 10)+" bytes, or too many for each compressed one")
	case errors.Is(err, reqbody.ErrTooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, 0,
			"the request body is larger than "+strconv.FormatInt(h.cfg.MaxBody, 10)+" bytes")
	case errors.Is(err, reqbody.ErrBusy):
		refuse(w, http.StatusServiceUnavailable, time.Second, err.Error())
	case errors.As(err, &timeout) && timeout.Timeout():
		refuse(w, http.StatusRequestTimeout, 0, "the request body did not come in time")
	case r.Context().Err() == nil:
		refuse(w, http.StatusBadRequest, 0, "the request body could not be read")
	}
}

func (h *Handler) refuseRoute(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody listens
	}
	h.cfg.Log.Warn("no target", "path", r.URL.Path, "err", err)
	status, wait, message := http.StatusServiceUnavailable, time.Second, "no engine is ready"
	var none *router.NoTargetError
	if errors.As(err, &none) {
		status, wait = none.Status(), max(wait, none.RetryAfter)
		if none.Shed != "" {
			message = "too many requests wait for the engines"
		}
	}
	refuse(w, status, wait, message)
}

// refuse answers with an error of the gateway's own, in the form that clients of
// the OpenAI API know.
func refuse(w http.ResponseWriter, status int, retryAfter time.Duration, message string) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(retryAfter.Seconds())), 10))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(errorBody(status, message)) // the client may be gone
}

// errorBody returns the body of an error of the gateway's own.
func errorBody(status int, message string) []byte {
	type detail struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
	}
	b, err := json.Marshal(map[string]detail{"error": {message, "gateway_error", status}})
	if err != nil {
		return []byte("{}") // no string fails
	}
	return append(b, '\n')
}
