package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/internal/statetest"
	"github.com/warmroute/router/vllmtest"
)

// engines are the replicas behind the gateway, and what they see: for chats simulated ones, for responses,
// conversations and files such as keep them.
type engines struct {
	urls    []string
	control string
	close   []func()

	mu       sync.Mutex
	requests int
	served   int // with a status below 300
	left     int // by the client
	by       map[string]bool
	fails    int
	active   int
	client   string   // that is run
	recorded []record // requests that were served
	status   int
	check    int    // the number of the check
	page     []byte // for a browser
	result   string // that it posted
}

func startEngines(n int) (*engines, error) {
	e := &engines{by: map[string]bool{}}
	for i := range n {
		s, err := vllmtest.New(vllmtest.Config{TimeScale: 0.05, ReplyTokens: 16})
		if err != nil {
			e.stop()
			return nil, err
		}
		k := statetest.Start(fmt.Sprint("e", i))
		e.close = append(e.close, s.Close, k.Close)
		chat, state := to(s.URL), to(k.URL)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next := chat
			for _, p := range []string{"/v1/responses", "/v1/conversations", "/v1/files"} {
				if strings.HasPrefix(r.URL.Path, p) {
					next = state
				}
			}
			if r.URL.Path == "/health" || r.URL.Path == "/metrics" || r.URL.Path == "/v1/models" {
				next.ServeHTTP(w, r)
				return
			}
			e.serve(fmt.Sprint("e", i), w, r, next)
		}))
		e.close = append(e.close, srv.Close)
		e.urls = append(e.urls, srv.URL)
	}
	ctl := httptest.NewServer(http.HandlerFunc(e.answer))
	e.control, e.close = ctl.URL, append(e.close, ctl.Close)
	return e, nil
}

func (e *engines) stop() {
	for _, c := range slices.Backward(e.close) {
		c()
	}
}

func to(base string) http.Handler {
	u, err := url.Parse(base)
	if err != nil {
		panic(err) // of a server of ours
	}
	quiet := log.New(io.Discard, "", 0) // clients leave on purpose
	return &httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) },
	}
}

// serve counts a request and passes it on, unless it is to fail. It allows every origin, as vLLM does.
func (e *engines) serve(name string, w http.ResponseWriter, r *http.Request, next http.Handler) {
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", "*")
			w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			return
		}
	}
	e.mu.Lock()
	e.requests++
	e.active++
	fail := e.fails > 0
	if fail {
		e.fails--
	} else {
		e.by[name] = true
	}
	status, check := e.status, e.check
	e.mu.Unlock()
	if fail {
		w.WriteHeader(status)
		e.mu.Lock()
		e.active--
		e.mu.Unlock()
		return
	}
	rec := &recorder{ResponseWriter: w}
	whole := false
	defer func() { // the proxy panics when a reply breaks off
		e.mu.Lock()
		defer e.mu.Unlock()
		e.active--
		switch {
		case check != e.check: // of an earlier one
		case whole && rec.status < 300:
			e.served++
		case r.Context().Err() != nil:
			e.left++
		}
	}()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.keep(r, body)
	next.ServeHTTP(rec, r)
	whole = true
}

// record is a request as a client sent it, without what a gateway does not read.
type record struct {
	Client string          `json:"client"`
	Path   string          `json:"path"`
	Header http.Header     `json:"header"`
	Body   json.RawMessage `json:"body"`
}

// keep records a request of a JSON body.
func (e *engines) keep(r *http.Request, body []byte) {
	if !json.Valid(body) {
		return
	}
	rec := record{Path: r.URL.Path, Header: http.Header{}, Body: body}
	for k, v := range r.Header {
		switch k {
		case "Authorization", "X-Api-Key", "Content-Length", "User-Agent", "Accept-Encoding", "Connection":
		default:
			if !strings.HasPrefix(k, "X-Stainless-") && !strings.HasPrefix(k, "X-Forwarded-") {
				rec.Header[k] = v
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	rec.Client = e.client
	e.recorded = append(e.recorded, rec)
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// answer is the control of the checks: /reset, /fail?n=&status=, and /seen, which waits a moment for requests that end;
// /page and /result of a browser.
func (e *engines) answer(w http.ResponseWriter, r *http.Request) {
	for range 50 {
		e.mu.Lock()
		busy := e.active > 0
		e.mu.Unlock()
		if !busy || r.URL.Path != "/seen" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch r.URL.Path {
	case "/page":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(e.page)
		return
	case "/result":
		if r.Method == http.MethodPost {
			b, _ := io.ReadAll(io.LimitReader(r.Body, 4<<10))
			e.result = string(b)
		}
		_, _ = io.WriteString(w, e.result)
		return
	case "/reset":
		e.check++
		e.requests, e.served, e.left, e.fails, e.by = 0, 0, 0, 0, map[string]bool{}
	case "/fail":
		e.fails, _ = strconv.Atoi(r.URL.Query().Get("n"))
		e.status, _ = strconv.Atoi(r.URL.Query().Get("status"))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"requests": e.requests, "served": e.served, "left": e.left, "engines": slices.Sorted(maps.Keys(e.by)),
	})
}

func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
