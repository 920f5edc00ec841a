// Command minimal is a gateway in one page: it sends each request to the replica
// that can answer soonest.
//
//	minimal http://vllm-1:8000 http://vllm-2:8000
//
// It fails over, streams and counts, and leaves limits, timeouts and shutdown to
// examples/gateway.
package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"maps"
	"net/http"
	"os"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/cacheaware"
)

func main() {
	h, err := gateway(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", h))
}

func gateway(replicas []string) (http.Handler, error) {
	strategy, err := cacheaware.New(cacheaware.Config{})
	if err != nil {
		return nil, err
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, err
	}
	var members []loadview.Member
	for _, url := range replicas {
		members = append(members, loadview.Member{ID: url})
	}
	if err := fleet.Set(members); err != nil {
		return nil, err
	}
	return handler{router.New(strategy, fleet, router.Options{})}, nil
}

type handler struct{ router *router.Router }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
	if err != nil {
		http.Error(w, "the body is too large or did not come", http.StatusBadRequest)
		return
	}
	p, _ := prompt.FromRequest(r.URL.Path, r.Header, body) // not understood: still routed and counted
	begun := false
	err = h.router.Do(r.Context(), p, func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
		out, err := http.NewRequestWithContext(ctx, r.Method, l.Decision().Target.ID+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			return router.Outcome{}, err
		}
		out.Header = r.Header
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			return router.Outcome{}, err // another replica gets it
		}
		defer resp.Body.Close()
		o := router.Outcome{Status: resp.StatusCode}
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
			return o, nil // another replica gets it
		}
		begun = true
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		var reply prompt.Reply
		_, err = io.Copy(stream{w, resp.StatusCode, l}, io.TeeReader(resp.Body, &reply))
		o.Reply = reply.Text()
		return o, err
	})
	switch {
	case err != nil && begun:
		panic(http.ErrAbortHandler) // a reply that broke off must not look complete
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// stream passes each part of a reply on at once.
type stream struct {
	http.ResponseWriter
	status int
	lease  *router.Lease
}

func (s stream) Write(b []byte) (int, error) {
	if s.status < 300 {
		s.lease.FirstToken()
	}
	n, err := s.ResponseWriter.Write(b)
	s.ResponseWriter.(http.Flusher).Flush()
	return n, err
}
