package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

//go:embed openapi.json
var openapi []byte

// Config has the settings of a Service. The zero value of each field but Router
// and Fleet is the documented default.
type Config struct {
	// Router chooses among the members of Fleet. Callers receive their IDs.
	Router *router.Router
	Fleet  *loadview.View
	// Parser makes prompts of the bodies that callers send.
	Parser prompt.Parser

	// MaxLeases bounds the leases that are open at once; 0 means 65,536. More are
	// refused with 503.
	MaxLeases int
	// MaxBytes bounds the bytes that the prompts of open leases take; 0 means 256 MiB.
	// More are refused with 503.
	MaxBytes int64
	// MaxBody bounds the body of one request in bytes; 0 means 8 MiB. MaxRequests
	// bounds the POST requests that are served at once, so that their bodies take
	// MaxRequests times MaxBody at most; 0 means 64. More are refused with 503.
	MaxBody     int64
	MaxRequests int

	// Memory bounds the bodies of requests and the prompts of leases in addition, by the accounts of these names; nil: one
	// of membudget's defaults. What does not fit is refused with 503, or with 413 if it never can.
	Memory *membudget.Budget

	// Hosts are further names under which callers reach the Service over TCP, without ports.
	Hosts []string

	// Deadline is the default deadline of a lease, MaxDeadline the longest that
	// a caller may set; 0 means 10 minutes and 1 hour.
	Deadline, MaxDeadline time.Duration

	// Log receives each lease that ended by its deadline; nil: no logging.
	Log *slog.Logger
}

// Service is the HTTP API. Close it when the server has stopped.
type Service struct {
	cfg    Config
	mux    *http.ServeMux
	busy   chan struct{}
	bodies *membudget.Account
	leases leases

	origins *http.CrossOriginProtection
}

// New returns a Service. Its error names the field.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.Router == nil:
		return nil, errors.New("sidecar: Router is missing")
	case cfg.Fleet == nil:
		return nil, errors.New("sidecar: Fleet is missing")
	}
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"MaxLeases", int64(cfg.MaxLeases)}, {"MaxBytes", cfg.MaxBytes}, {"MaxBody", cfg.MaxBody},
		{"MaxRequests", int64(cfg.MaxRequests)},
		{"Deadline", int64(cfg.Deadline)}, {"MaxDeadline", int64(cfg.MaxDeadline)},
	} {
		if f.n < 0 {
			return nil, fmt.Errorf("sidecar: %s is negative", f.name)
		}
	}
	cfg.MaxLeases = cmp.Or(cfg.MaxLeases, 65536)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 256<<20)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 8<<20)
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, 64)
	cfg.MaxDeadline = cmp.Or(cfg.MaxDeadline, time.Hour)
	cfg.Deadline = min(cmp.Or(cfg.Deadline, 10*time.Minute), cfg.MaxDeadline)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Memory == nil {
		var err error
		if cfg.Memory, err = membudget.New(membudget.Config{Shares: shares()}); err != nil {
			return nil, err
		}
	}
	s := &Service{
		cfg: cfg, bodies: cfg.Memory.Account(membudget.Bodies), mux: http.NewServeMux(),
		busy: make(chan struct{}, cfg.MaxRequests), origins: http.NewCrossOriginProtection(),
	}
	s.leases.init(cfg.MaxLeases, cfg.MaxBytes, cfg.Memory.Account(membudget.Leases), cfg.Log)
	for pattern, h := range s.routes() {
		s.mux.HandleFunc(pattern, h)
	}
	return s, nil
}

// shares are the parts of the memory of a sidecar.
func shares() map[string]float64 {
	return map[string]float64{membudget.Bodies: 0.5, membudget.Leases: 0.5}
}

// routes are all of the API, as openapi.json has it.
func (s *Service) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /pick":        s.bounded(s.pick),
		"POST /done":        s.bounded(s.done),
		"GET /healthz":      s.health,
		"GET /targets":      s.targets,
		"GET /openapi.json": s.describe,
	}
}

// ServeHTTP serves the API. Over TCP it serves no name but localhost, the addresses of the machine and Config.Hosts,
// so that a page in a browser cannot reach it by a name of its own. It serves no page's request from another origin.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case !s.local(r):
		fail(w, &failure{status: http.StatusForbidden, code: "forbidden", message: "the Host is not served here"})
	case s.origins.Check(r) != nil:
		fail(w, &failure{status: http.StatusForbidden, code: "forbidden", message: "another origin is refused"})
	case r.Method == http.MethodPost && media != "" && media != "application/json": // what forms send
		fail(w, &failure{status: http.StatusUnsupportedMediaType, code: "bad_request", message: "want application/json"})
	default:
		s.mux.ServeHTTP(w, r)
	}
}

// local reports whether r came over something else than TCP, or names the machine by an address, as localhost, or by
// one of Config.Hosts.
func (s *Service) local(r *http.Request) bool {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !ok || a.Network() != "tcp" {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil || slices.Contains(s.cfg.Hosts, host)
}

// Close ends every lease as canceled and refuses more.
func (s *Service) Close() { s.leases.close() }

// failure is an error with its place in the API.
type failure struct {
	status     int
	code       string
	message    string
	retryAfter time.Duration
}

func (f *failure) Error() string { return f.message }

func bad(message string) error {
	return &failure{status: http.StatusBadRequest, code: "bad_request", message: message}
}

func unavailable(code, message string, retryAfter time.Duration) error {
	return &failure{status: http.StatusServiceUnavailable, code: code, message: message,
		retryAfter: max(retryAfter, time.Second)}
}

// bounded is a handler of a POST request, one of MaxRequests.
func (s *Service) bounded(h func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.busy <- struct{}{}:
			defer func() { <-s.busy }()
		default:
			fail(w, unavailable("busy", "too many requests at once", 0))
			return
		}
		hold := s.bodies.Hold()
		defer hold.Release()
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		v, err := h(within(r, &hold))
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, http.StatusOK, v)
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, err error) {
	var f *failure
	var shed *membudget.Error
	if errors.As(err, &shed) {
		f = &failure{status: shed.StatusCode(), code: "no_memory", message: shed.Message(), retryAfter: shed.RetryAfter()}
	} else if !errors.As(err, &f) {
		f = &failure{status: http.StatusInternalServerError, code: "internal", message: err.Error()}
	}
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(f.retryAfter.Seconds())), 10))
	}
	type detail struct {
		Code         string `json:"code"`
		Message      string `json:"message"`
		RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	}
	reply(w, f.status, map[string]detail{"error": {f.code, f.message, f.retryAfter.Milliseconds()}})
}

// holdKey is the key of a request's bytes in its context.
type holdKey struct{}

func within(r *http.Request, hold *membudget.Hold) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), holdKey{}, hold))
}

// read decodes the one JSON object that r's body has to be. The values that it makes take at most about three times
// the bytes of the body, which are reserved.
func read(r *http.Request, v any) error {
	hold, ok := r.Context().Value(holdKey{}).(*membudget.Hold)
	if !ok {
		hold = new(membudget.Hold)
	}
	data, err := membudget.ReadAll(hold, r.Body, r.ContentLength, math.MaxInt64-1)
	if errors.Is(err, membudget.ErrShed) {
		return err
	}
	if err == nil {
		if err := hold.Add(3 * int64(len(data))); err != nil {
			return err
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err = dec.Decode(v); err == nil {
			if _, err = dec.Token(); err == io.EOF {
				return nil
			} else if err == nil {
				err = errors.New("more than one JSON value")
			}
		}
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &failure{status: http.StatusRequestEntityTooLarge, code: "too_large",
			message: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)}
	}
	return bad(err.Error())
}

type pickRequest struct {
	// Path, Headers and Body are the request that is to be sent to an engine.
	Path    string          `json:"path"`
	Headers headers         `json:"headers"`
	Body    json.RawMessage `json:"body"`
	// Prompt replaces them.
	Prompt *struct {
		Model   string   `json:"model"`
		Adapter string   `json:"adapter"`
		Salt    string   `json:"salt"`
		Session string   `json:"session"`
		Text    string   `json:"text"`
		Tokens  []uint32 `json:"tokens"`
		Must    names    `json:"must"`
	} `json:"prompt"`
	Exclude    names `json:"exclude"`
	DeadlineMS int64 `json:"deadline_ms"`
}

// maxExclude bounds pickRequest.Exclude: the greatest fleet that we know of.
const maxExclude = 1000

type pickReply struct {
	Lease      string        `json:"lease"`
	Target     string        `json:"target"`
	Reason     router.Reason `json:"reason"`
	Cached     int           `json:"cached"`
	Length     int           `json:"length"`
	Unit       string        `json:"unit"`
	Attempt    int           `json:"attempt"`
	DeadlineMS int64         `json:"deadline_ms"`
}

func picked(id string, l *router.Lease, deadline time.Duration) *pickReply {
	d := l.Decision()
	return &pickReply{
		Lease: id, Target: d.Target.ID, Reason: d.Reason, Cached: d.Cached, Length: d.Length, Unit: d.Unit.String(),
		Attempt: l.Attempt(), DeadlineMS: deadline.Milliseconds(),
	}
}

func (s *Service) pick(r *http.Request) (any, error) {
	var in pickRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	deadline := time.Duration(in.DeadlineMS) * time.Millisecond
	switch {
	case in.DeadlineMS < 0 || in.DeadlineMS > s.cfg.MaxDeadline.Milliseconds():
		return nil, bad(fmt.Sprintf("deadline_ms is not within 0 and %d", s.cfg.MaxDeadline.Milliseconds()))
	case deadline == 0:
		deadline = s.cfg.Deadline
	}
	if len(in.Exclude) > maxExclude {
		return nil, bad(fmt.Sprintf("exclude names more than %d targets", maxExclude))
	}
	p, err := s.prompt(&in)
	if err != nil {
		return nil, err
	}
	size := sizeOf(p)
	if err := s.leases.reserve(size); err != nil {
		return nil, err
	}
	// The lease outlives this call: its own deadline ends it.
	l, err := s.cfg.Router.Route(context.WithoutCancel(r.Context()), p, in.Exclude...)
	if err != nil {
		s.leases.release(size)
		return nil, noTarget(err)
	}
	id, err := s.leases.keep(l, func() {}, deadline)
	if err != nil {
		return nil, err
	}
	if r.Context().Err() != nil { // nobody will know of it
		s.leases.end(id, router.Outcome{Stage: router.Canceled})
	}
	return picked(id, l, deadline), nil
}

func noTarget(err error) error {
	var none *router.NoTargetError
	if errors.As(err, &none) {
		return &failure{status: none.Status(), code: "no_target", message: none.Error(),
			retryAfter: max(none.RetryAfter, time.Second)}
	}
	return err
}

func (s *Service) prompt(in *pickRequest) (router.Prompt, error) {
	if q := in.Prompt; q != nil {
		if in.Body != nil {
			return router.Prompt{}, bad("body and prompt are both there")
		}
		return router.Prompt{Model: q.Model, Adapter: q.Adapter, Salt: q.Salt, Session: q.Session, Text: q.Text,
			Tokens: q.Tokens, Must: q.Must}, nil
	}
	h := make(http.Header, len(in.Headers))
	for k, v := range in.Headers {
		h.Set(k, v)
	}
	// A body that cannot be parsed is routed and counted as well.
	p, _ := s.cfg.Parser.FromRequest(cmp.Or(in.Path, "/v1/chat/completions"), h, in.Body)
	return p, nil
}
