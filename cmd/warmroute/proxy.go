package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

// Config configures a Handler. The zero value of each field but service is the
// documented default.
type Config struct {
	// service has the routes.
	service *service
	// Parser turns requests into prompts.
	Parser prompt.Parser
	// Transport sends; nil means NewTransport with the service's policy.
	Transport http.RoundTripper
	// Log gets a line for each request that was sent again or failed; nil: none.
	Log *slog.Logger

	// MaxBody bounds one request body in bytes; 0 means 32 MiB.
	MaxBody int64
	// MaxBodies bounds the bytes of all request bodies held at once, which are counted as
	// they come, and of the texts of their prompts, which are copies of most of them; 0
	// means 1 GiB. MaxRequests bounds the requests at once, which are counted when their
	// bodies are there; 0 means 16,384. Over either the answer is 503.
	MaxBodies   int64
	MaxRequests int
	// ClientShare is the share of MaxBodies and of MaxRequests that the clients of one
	// address may take, above 0 and at most 1. 0: all of it. Clients behind one proxy
	// have one address.
	ClientShare float64
	// Silent leaves out the headers with the choice and the cached share of the prompt,
	// which depends on the prompts of others.
	Silent bool

	// BodyTimeout and BodyRate bound how slowly a client may send its body: in each
	// BodyTimeout the rest of it must come, or BodyRate bytes a second. 0 means one
	// minute and 8,192. WriteTimeout bounds how long a client may leave a reply
	// unread; 0 means one minute.
	BodyTimeout, WriteTimeout time.Duration
	BodyRate                  int64
	// KeepAlive is how long an unused connection to a target is kept; 0 means 4 s. It is
	// used only if Transport is nil.
	KeepAlive time.Duration
	// Heartbeat is how often a stream gets a comment before its first token, at the price
	// of failing over from the first one on; 0: never.
	Heartbeat time.Duration
	// OpenPaths are paths of the engines that are open to clients in addition to those of
	// their APIs: a path, or with a * at its end the beginning of one.
	OpenPaths []string
	// HeaderTimeout bounds the wait for a target's reply to begin, which for a
	// reply that is not streamed is the whole of it; 0 means 10 minutes.
	// IdleTimeout bounds the wait for more of a reply; 0 means 5 minutes. There
	// is no bound on a whole reply.
	HeaderTimeout, IdleTimeout time.Duration
}

// Handler is the reverse proxy: it reads a request, asks the Router for a
// target, passes the reply on as it comes, and settles the lease.
type Handler struct {
	cfg      Config
	bodies   *reqbody.Pool
	prompts  *membudget.Account
	replies  *membudget.Account
	active   atomic.Int64 // requests being served, from when their bodies are there
	clients  *reqbody.Shares
	draining atomic.Bool
	fresh    http.RoundTripper // without kept connections; nil: there is none

	reconnects atomic.Int64 // requests sent once more because a kept connection was closed
}

// NewHandler returns a Handler.
func NewHandler(cfg Config) (*Handler, error) {
	if cfg.service == nil {
		return nil, errors.New("service is missing")
	}
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"MaxBody", cfg.MaxBody}, {"MaxBodies", cfg.MaxBodies}, {"MaxRequests", int64(cfg.MaxRequests)},
		{"BodyTimeout", int64(cfg.BodyTimeout)}, {"BodyRate", cfg.BodyRate}, {"WriteTimeout", int64(cfg.WriteTimeout)},
		{"KeepAlive", int64(cfg.KeepAlive)}, {"Heartbeat", int64(cfg.Heartbeat)},
		{"HeaderTimeout", int64(cfg.HeaderTimeout)}, {"IdleTimeout", int64(cfg.IdleTimeout)},
	} {
		if f.n < 0 {
			return nil, fmt.Errorf("%s is negative", f.name)
		}
	}
	if !(cfg.ClientShare >= 0 && cfg.ClientShare <= 1) {
		return nil, fmt.Errorf("ClientShare is %v; it must be 0 to 1", cfg.ClientShare)
	}
	memory := cfg.service.memory
	bounds := reqbody.Config{
		MaxBody: cfg.MaxBody, MaxBodies: cfg.MaxBodies, Timeout: cfg.BodyTimeout, Rate: cfg.BodyRate,
		Memory: memory.Account(membudget.Bodies),
	}.WithDefaults()
	decoder, err := contentcoding.New(contentcoding.Config{MaxBytes: bounds.MaxBody})
	if err != nil {
		return nil, err
	}
	bounds.Decode = decoder.DecodeTo
	cfg.MaxBody, cfg.BodyTimeout = bounds.MaxBody, bounds.Timeout
	cfg.Parser.MaxBody = cmp.Or(cfg.Parser.MaxBody, -1) // a longer one does not get there
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, 16384)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, time.Minute)
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, 10*time.Minute)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 5*time.Minute)
	if cfg.Transport == nil {
		own := NewTransport(cfg.service.policy)
		own.TLSClientConfig = cfg.service.gateway.TLS().Clone()
		own.IdleConnTimeout = cmp.Or(cfg.KeepAlive, own.IdleConnTimeout)
		cfg.Transport = own
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.service.transport = cfg.Transport
	h := &Handler{
		cfg: cfg, fresh: unlinked(cfg.Transport),
		prompts: memory.Account(membudget.Prompts), replies: memory.Account(membudget.Replies),
	}
	if cfg.ClientShare > 0 {
		bounds.MaxClient = max(int64(cfg.ClientShare*float64(bounds.MaxBodies)), 1)
		h.clients = reqbody.NewShares(max(int64(cfg.ClientShare*float64(cfg.MaxRequests)), 1))
	}
	if h.bodies, err = reqbody.New(bounds); err != nil {
		return nil, err
	}
	cfg.service.metrics.handler(h)
	return h, nil
}

// NewTransport returns a transport for many long streams to few targets:
// HTTP/1.1, no proxy, no compression of its own, and no address that the policy of the
// moment denies.
func NewTransport(policy func() egress.Policy) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return policy().Dialer().DialContext(ctx, network, address)
		},
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true, // Accept-Encoding is the client's affair
		MaxIdleConnsPerHost:    4096,
		MaxResponseHeaderBytes: 256 << 10,
		WriteBufferSize:        16 << 10, // a chat's headers and body leave in one write
		ReadBufferSize:         8 << 10,
		// uvicorn, which serves vLLM and SGLang, closes a connection that was
		// idle for 5 s; a request that meets that moment has to be sent again.
		IdleConnTimeout: 4 * time.Second,
	}
}

// Drain makes /healthz answer 503 from now on. Requests are served as before.
func (h *Handler) Drain() { h.draining.Store(true) }

// Active returns the number of requests being served.
func (h *Handler) Active() int { return int(h.active.Load()) }

// ServeHTTP answers /healthz, the list of models and the page of counts, if there are
// any, and forwards everything else.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := newClient(w, h.cfg.WriteTimeout)
	if r.Body != nil && r.Body != http.NoBody {
		// Of a body that is not read to its end the server itself reads a part, after
		// the answer or before it, and waits for it as long as it is let.
		client.ctl.SetReadDeadline(time.Now().Add(h.cfg.BodyTimeout))
	}
	crossOrigin(w, r)
	if h.own(w, r) {
		return
	}
	coding := r.Header.Values("Content-Encoding")
	unsupported := contentcoding.Check(coding)
	if !contentcoding.Encoded(coding) {
		r.Header.Del("Content-Encoding") // identity means none
	}
	switch {
	case h.active.Load() >= int64(h.cfg.MaxRequests):
		h.refuseBody(w, r, reqbody.ErrBusy)
		return
	case r.Method == http.MethodConnect || wantsWebSocket(r):
		refuse(w, http.StatusNotImplemented, 0, "tunnels and WebSockets are not proxied")
		return
	case climbs(r.URL):
		refuse(w, http.StatusBadRequest, 0, "the path has a .. in it")
		return
	case !mayReach(r.URL, h.openPaths()):
		refusePath(w)
		return
	case unsupported != nil:
		h.refuseBody(w, r, unsupported)
		return
	}

	in, err := h.bodies.Read(w, r)
	client.arm() // a body may have taken longer than an answer may
	if err != nil {
		h.refuseBody(w, r, err)
		return
	}
	defer in.Release()
	if contentcoding.Encoded(coding) {
		contentcoding.Remove(r.Header)
	}
	if r.Body != nil && r.Body != http.NoBody {
		// The server's reads from now on, which notice that the client has gone, must not
		// time out.
		client.ctl.SetReadDeadline(time.Time{})
	}
	if !h.enter(r) {
		refuse(w, http.StatusServiceUnavailable, time.Second, reqbody.ErrBusy.Error())
		return
	}
	defer h.leave(r)
	if err := h.cfg.service.refused(r, in.Bytes()); err != nil {
		refuseMember(w, err)
		return
	}

	prompts := h.prompts.Hold()
	defer prompts.Release()
	p, err := h.parse(&prompts, r, in.Bytes())
	if err == nil {
		err = h.replies.Reserve(replyBytes)
	}
	if err != nil {
		h.refuseBody(w, r, err)
		return
	}
	defer h.replies.Release(replyBytes)
	if n := int64(len(p.Text)); n > 0 { // a copy of most of the body
		if !h.bodies.Reserve(n) {
			h.refuseBody(w, r, reqbody.ErrBusy)
			return
		}
		defer h.bodies.Give(n)
	}
	var name named
	often := false
	if p.Model == "" {
		name, often = elsewhere(r, in.Bytes())
		p.Model, often = name.model, !often
	}
	matches := h.cfg.service.matches(r, p)
	if len(matches) == 0 {
		refuseModel(w, p.Model, len(in.Bytes()) > 0)
		return
	}
	if r, err = h.cfg.service.classed(r); err != nil {
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	x := &exchange{
		h: h, prompts: &prompts, client: client, r: r, in: in, header: upstreamHeader(r), names: name.at, where: name.where,
	}
	for i, m := range matches {
		x.match = m
		state := h.cfg.service.state(m.Route)
		x.limit = state.attempt
		if state.renames && m.Requested != "" && x.where == inJSON {
			var ok bool
			x.names, ok = modelSpans(in.Bytes())
			often = !ok
		}
		if often {
			refuseWith(w, http.StatusBadRequest, "BadRequestError", "model", "The request names its model too often.")
			return
		}
		x.tokens = state.tokens.fill(x, &p)
		routed, refused := x.begin(state.split, m.Prompt(p))
		if errors.Is(refused, disagg.ErrUnsupported) {
			refuse(w, http.StatusBadRequest, 0, refused.Error())
			return
		}
		if errors.Is(refused, membudget.ErrShed) {
			h.refuseBody(w, r, refused)
			return
		}
		if refused != nil {
			refuseMember(w, refused)
			return
		}
		if x.lease, err = routed.Route(r.Context(), m.Prompt(p)); err == nil {
			x.run()
			return
		}
		if i == len(matches)-1 || !errors.Is(err, router.ErrNoTarget) {
			client.arm()
			h.refuseRoute(w, r, err)
			return
		}
	}
}

// enter counts a request when its body is there, unless there are too many; leave takes
// it back.
func (h *Handler) enter(r *http.Request) bool {
	if h.active.Add(1) > int64(h.cfg.MaxRequests) {
		h.active.Add(-1)
		return false
	}
	if h.clients != nil && !h.clients.Take(reqbody.ClientOf(r), 1) {
		h.active.Add(-1)
		return false
	}
	return true
}

func (h *Handler) leave(r *http.Request) {
	h.active.Add(-1)
	if h.clients != nil {
		h.clients.Give(reqbody.ClientOf(r), 1)
	}
}

// replyBytes are reserved for each reply: the buffer by which it is passed on, and what is kept of it in any case.
const replyBytes = int64(unsafe.Sizeof(buffer{})) + prompt.ReplyBase

// parse returns r's prompt, with its bytes in hold. One that is not understood is empty, or as much as
// was understood; the request is routed and counted all the same. An error is one of the memory.
func (h *Handler) parse(hold *membudget.Hold, r *http.Request, body []byte) (router.Prompt, error) {
	p, err := h.cfg.Parser.Within(hold, r.URL.Path, r.Header, body)
	if errors.Is(err, membudget.ErrShed) {
		return p, err
	}
	if err != nil && len(body) > 0 {
		h.cfg.Log.Debug("request not understood", "path", r.URL.Path, "err", err)
	}
	return p, nil
}

// climbs reports whether a part of u's path is .., with which it could leave the path of
// a target's base: engines, and proxies before them, resolve it, also if a slash or a
// backslash is escaped, or if parameters follow.
func climbs(u *url.URL) bool {
	if !strings.Contains(u.Path, "..") {
		return false
	}
	for part := range strings.FieldsFuncSeq(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if name, _, _ := strings.Cut(part, ";"); name == ".." {
			return true
		}
	}
	return false
}

// resolve returns the URL of a request for u at the target with the given base.
func resolve(base, u *url.URL) *url.URL {
	out := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
	if base.Path != "" && base.Path != "/" {
		out.Path = strings.TrimSuffix(base.Path, "/") + u.Path
		if base.RawPath != "" || u.RawPath != "" {
			out.RawPath = strings.TrimSuffix(base.EscapedPath(), "/") + u.EscapedPath()
		}
	}
	return out
}

// client is the writer of the reply. It gives each write a deadline, renewed
// only now and then, because setting one costs about as much as a small write.
type client struct {
	w       http.ResponseWriter
	ctl     *http.ResponseController
	timeout time.Duration
	armed   time.Time
}

func newClient(w http.ResponseWriter, timeout time.Duration) *client {
	c := &client{w: w, ctl: http.NewResponseController(w), timeout: timeout}
	c.arm()
	return c
}

func (c *client) arm() {
	if now := time.Now(); now.Sub(c.armed) > c.timeout/4 {
		c.ctl.SetWriteDeadline(now.Add(c.timeout))
		c.armed = now
	}
}

func (c *client) Write(p []byte) (int, error) {
	c.arm()
	return c.w.Write(p)
}

func (c *client) flush() error { return c.ctl.Flush() }

// cause returns the cause of ctx's end, nil if it has not ended.
func cause(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}
