package vllmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	pathChat        = "/v1/chat/completions"
	pathCompletions = "/v1/completions"
	pathMessages    = "/v1/messages"
	pathTokenize    = "/tokenize"
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, f := range formats {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, path, &f) })
	}
	mux.HandleFunc("POST "+pathTokenize, s.tokenize)
	if s.cfg.DynamicAdapters {
		mux.HandleFunc("POST "+pathLoad, s.loadAdapter)
		mux.HandleFunc("POST "+pathUnload, s.unloadAdapter)
	}
	probe := func(h func(http.ResponseWriter, *generation)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			g := s.current()
			if s.spoil(w, r, g, s.fault(true)) {
				h(w, g)
			}
		}
	}
	mux.HandleFunc("GET /health", probe(func(http.ResponseWriter, *generation) {}))
	page := func(h func(http.ResponseWriter, *generation)) http.HandlerFunc {
		h2 := probe(h)
		return func(w http.ResponseWriter, r *http.Request) {
			if s.spoilMetrics(w, r) {
				h2(w, r)
			}
		}
	}
	mux.HandleFunc("GET "+s.cfg.metricsPath(), page(s.metrics))
	if s.cfg.Dialect == TensorRT {
		mux.HandleFunc("GET /metrics", page(s.iterations))
	}
	mux.HandleFunc("GET /v1/models", probe(s.models))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, http.StatusNotFound, "Not Found")
	})
	return mux
}

func (s *Server) metrics(w http.ResponseWriter, g *generation) {
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	_, _ = w.Write(metricsPage(&s.cfg, s.snapshots(g)))
}

// snapshots returns the numbers of each rank of g for the metrics.
func (s *Server) snapshots(g *generation) []snapshot {
	s.mu.Lock()
	asleep := s.faults.Asleep
	s.mu.Unlock()
	all := make([]snapshot, len(g.engines))
	for i, e := range g.engines {
		all[i] = e.snapshot()
		all[i].asleep = asleep
	}
	st := &all[0]
	if s.cfg.Instant {
		st.running = int(s.inFlight.Load())
		st.stopped = s.n.finished.Load() - g.finishedBefore
		st.promptTokens = s.n.promptTokens.Load() - g.promptBefore
		st.outputTokens = s.n.outputTokens.Load() - g.outputBefore
	}
	return all
}

func (s *Server) models(w http.ResponseWriter, _ *generation) {
	type model struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen *int    `json:"max_model_len"`
	}
	name, now := s.cfg.modelName(), time.Now().Unix()
	data := []model{{
		ID: name, Object: "model", Created: now, OwnedBy: "vllm", Root: name, MaxModelLen: &s.cfg.MaxModelLen,
	}}
	for _, a := range s.cfg.served.list() {
		data = append(data, model{ID: a, Object: "model", Created: now, OwnedBy: "vllm", Root: a, Parent: &name})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	if !s.spoil(w, r, s.current(), s.fault(false)) {
		return
	}
	tokens, err := func() ([]uint32, error) {
		raw, err := s.readBody(w, r, nil)
		if err != nil {
			return nil, err
		}
		b, err := decode(raw)
		if err != nil {
			return nil, err
		}
		if _, _, err := s.cfg.scope(b); err != nil {
			return nil, err
		}
		all, err := b.promptTokens(pathTokenize)
		if err != nil {
			return nil, err
		}
		if len(all) != 1 {
			return nil, badRequest("prompt is not one text")
		}
		return all[0], nil
	}()
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"count": len(tokens), "max_model_len": s.cfg.MaxModelLen, "tokens": tokens, "token_strs": nil,
	})
}

// readBody reads the body into buf, growing it.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, buf []byte) ([]byte, error) {
	if r.ContentLength > s.cfg.MaxBody {
		msg := fmt.Sprintf("the body is longer than %d bytes", s.cfg.MaxBody)
		return buf, &requestError{status: http.StatusRequestEntityTooLarge, msg: msg}
	}
	if n := r.ContentLength; int64(cap(buf)) <= n && n < 1<<20 {
		buf = make([]byte, 0, n+1)
	}
	body := http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			var tooLong *http.MaxBytesError
			if errors.As(err, &tooLong) {
				return buf, &requestError{status: http.StatusRequestEntityTooLarge, msg: err.Error()}
			}
			return buf, err
		}
	}
}

func discard(r io.Reader, limit int64) { _, _ = io.CopyN(io.Discard, r, limit) }

// refuse answers a request that fails before its reply has begun.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var e *requestError
	switch {
	case errors.As(err, &e):
		writeError(w, r, e.status, e.msg)
	case errors.Is(err, errBusy):
		writeError(w, r, http.StatusServiceUnavailable, err.Error())
	default: // the client left while it sent the body
		panic(http.ErrAbortHandler)
	}
}

// generate answers the paths that generate, and counts how that ends.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, path string, f *format) {
	s.n.requests.Add(1)
	n := s.inFlight.Add(1)
	ended := &s.n.aborted // unless it ends otherwise
	defer func() {
		s.inFlight.Add(-1)
		ended.Add(1)
	}()
	g := s.current()
	fault := s.fault(false)
	if !s.spoil(w, r, g, fault) {
		ended = &s.n.failed
		return
	}
	var err error
	switch {
	case n > int64(s.cfg.MaxRequests): // before the body takes memory
		err = errBusy
		g.engines[0].reject()
	case s.fixed != nil:
		err = s.fixed.serve(s, w, r, g, path, f, fault)
	default:
		err = s.simulate(w, r, g, path, f, fault)
	}
	switch {
	case err == nil:
		ended = &s.n.finished
	case errors.Is(err, errBusy):
		ended = &s.n.rejected
		s.refuse(w, r, err)
	default:
		if e := (*requestError)(nil); errors.As(err, &e) {
			ended = &s.n.failed
		}
		s.refuse(w, r, err)
	}
}

// simulate answers a request by the engine. An error means that no reply has
// begun.
func (s *Server) simulate(
	w http.ResponseWriter, r *http.Request, g *generation, path string, f *format, fault Faults,
) error {
	raw, err := s.readBody(w, r, nil)
	if err != nil {
		return err
	}
	b, err := decode(raw)
	if err != nil {
		return err
	}
	j, err := s.cfg.job(path, b)
	if err != nil {
		return err
	}
	rank, err := rankOf(r, len(g.engines))
	if err != nil {
		return err
	}
	seqs := make([]*seq, 0, len(j.prompts))
	// However this ends, the scheduler keeps no sequence of the request.
	defer func() {
		for _, q := range seqs {
			q.engine.abort(q)
		}
	}()
	for i, p := range j.prompts {
		rep := &j.replies[i]
		q := newSeq(j.root, p, rep.tokens(), s.cfg.BlockSize, rep.token)
		q.slow, q.salt = fault.Slow, b.CacheSalt
		if s.cfg.served.has(b.Model) {
			q.adapter = b.Model
		}
		q.engine = g.engine(rank)
		if len(j.prompts) == 1 {
			if err := s.receive(r.Context(), g, b, q); err != nil {
				return err
			}
			if q.wrong {
				rep.seed = mix(rep.seed + 1)
			}
		}
		if err := q.engine.submit(q); err != nil {
			return err
		}
		seqs = append(seqs, q)
	}
	o := &output{s: s, w: w, r: r, g: g, f: f, job: j, seqs: seqs, cutAfter: fault.CutAfter, head: s.head(j.model)}
	o.head.includeUsage = j.includeUsage
	if j.returnIDs {
		o.head.ids = &tokenIDs{prompts: j.prompts}
	}
	if j.stream {
		o.stream()
	} else {
		o.whole()
	}
	return nil
}

func (s *Server) head(model string) *replyHead {
	name, err := json.Marshal(model)
	if err != nil {
		name = []byte(`""`)
	}
	return &replyHead{id: strconv.FormatUint(s.ids.Add(1), 16), created: time.Now().Unix(), model: string(name)}
}
