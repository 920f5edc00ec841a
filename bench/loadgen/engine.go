package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxBody bounds the part of a request that an engine reads, and of a reply that a
// client reads.
const maxBody = 16 << 20

// EngineConfig describes engines that cost as little as an engine can: they read
// a request, look only for a stream flag, wait, and answer with a fixed text.
// The reply's id contains the engine and the number of requests that its fleet
// had received; it survives any router.
type EngineConfig struct {
	Delay  time.Duration // before the answer
	Events int           // of text in a streamed reply, sent in one write; 0 means 16
}

// Engines are engines on loopback ports of this process.
type Engines struct {
	URLs []string

	servers []*http.Server
	seq     atomic.Uint64
}

// StartEngines starts n engines. Close ends them.
func StartEngines(n int, c EngineConfig) (*Engines, error) {
	if c.Events == 0 {
		c.Events = 16
	}
	e := new(Engines)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			e.Close()
			return nil, fmt.Errorf("loadgen: engine %d: %w", i, err)
		}
		s := &http.Server{Handler: e.handler(i, c), ReadHeaderTimeout: time.Minute}
		e.servers = append(e.servers, s)
		e.URLs = append(e.URLs, "http://"+l.Addr().String())
		go s.Serve(l)
	}
	return e, nil
}

// Close ends the engines and the requests that they are answering.
func (e *Engines) Close() error {
	var errs []error
	for _, s := range e.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// handler serves engine i.
func (e *Engines) handler(i int, c EngineConfig) http.Handler {
	const word = "word "
	var events strings.Builder // the part after the id in each event, from the second on
	for range c.Events {
		fmt.Fprintf(&events,
			"data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word)
	}
	events.WriteString(
		"data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	streamed := events.String()
	whole := fmt.Sprintf(
		`,"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, strings.Repeat(word, c.Events))

	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) {}
	mux.HandleFunc("GET /health", ok)
	mux.HandleFunc("GET /metrics", ok)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[{"id":"bench","object":"model"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// The order of receipt is that in which requests were read whole: a
		// later one cannot find in the cache a request that was read after it.
		id := engineID(i, e.seq.Add(1))
		if c.Delay > 0 && !wait(r.Context(), c.Delay) {
			return
		}
		if !wantsStream(body) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"id":"`+id+`"`+whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"id\":\""+id+
			"\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n"+
			streamed)
	})
	return mux
}

// readBody reads r's body and returns the end of it: enough to see whether the
// reply is to be streamed, which Workload.AppendBody writes last.
func readBody(r *http.Request) (end []byte, err error) {
	buf := make([]byte, 32<<10)
	body := io.LimitReader(r.Body, maxBody)
	n := 0
	for {
		if n == len(buf) {
			n = copy(buf, buf[n-64:])
		}
		m, err := body.Read(buf[n:])
		n += m
		if err == io.EOF {
			return buf[max(0, n-64):n], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func wantsStream(end []byte) bool { return strings.Contains(string(end), `"stream":true`) }

// wait waits for d and reports whether ctx lasted.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const idPrefix = "bench-"

func engineID(engine int, seq uint64) string {
	return idPrefix + strconv.Itoa(engine) + "-" + strconv.FormatUint(seq, 10)
}

// parseID finds the id in a reply.
func parseID(reply string) (engine int, seq uint64, ok bool) {
	_, rest, ok := strings.Cut(reply, `"`+idPrefix)
	if !ok {
		return 0, 0, false
	}
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		return 0, 0, false
	}
	a, b, ok := strings.Cut(id, "-")
	if !ok {
		return 0, 0, false
	}
	engine, err1 := strconv.Atoi(a)
	seq, err2 := strconv.ParseUint(b, 10, 64)
	return engine, seq, err1 == nil && err2 == nil && engine >= 0
}
