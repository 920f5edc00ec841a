// Command minimal is the smallest gateway that is one: it sends each request to
// the replica that can answer soonest, streams, counts and fails over.
//
//	minimal http://vllm-1:8000 http://vllm-2:8000
//
// For limits, timeouts, shutdown and learning from replies see examples/gateway.
package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/leastwork"
)

func main() {
	g, err := newGateway(os.Args[1:])
	if err == nil {
		err = http.ListenAndServe("localhost:8080", g)
	}
	log.Fatal(err)
}

type gateway struct{ *router.Router }

func newGateway(urls []string) (*gateway, error) {
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		return nil, err
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, err
	}
	var members []loadview.Member
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			return nil, err
		}
		members = append(members, loadview.Member{ID: s, Ref: u})
	}
	return &gateway{router.New(strategy, fleet, router.Options{})}, fleet.Set(members)
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 32<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answered := false
	p, _ := prompt.FromRequest(req.URL.Path, req.Header, body) // not understood: routed and counted all the same
	err = g.Do(req.Context(), p, func(ctx context.Context, l *router.Lease) (o router.Outcome, err error) {
		reply := prompt.ReplyTo(req.URL.Path, p)
		defer func() { // also if the proxy panics, because the reply broke off
			if end := reply.Outcome(o.Status, nil); answered && end.Err != nil {
				l.Done(end)
			}
		}()
		proxy := httputil.ReverseProxy{
			FlushInterval: -1, // each event of a stream at once
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(l.Decision().Target.Ref.(*url.URL))
				r.Out.Body = io.NopCloser(bytes.NewReader(body))
			},
			ModifyResponse: func(resp *http.Response) error {
				o = reply.Hold(resp)
				if o.Retryable() && !o.Lacking || o.Status < 100 { // an error, nothing, or not even a status
					return &router.StatusError{Status: o.Status} // another replica gets it
				}
				answered = true
				l.FirstToken()
				return nil
			},
			ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, e error) { err = e },
		}
		proxy.ServeHTTP(w, req.WithContext(ctx))
		return o, err
	})
	if err != nil && !answered {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
