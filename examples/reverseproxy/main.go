// Command reverseproxy is net/http/httputil.ReverseProxy with a Transport that
// picks the replica: proxy.go is all of it, this file is the program around.
//
//	reverseproxy http://vllm-1:8000 http://vllm-2:8000
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/httpproxy"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

// headerTimeout is how long a replica may take to begin its reply, with prefill. A
// reply that comes later is not asked for elsewhere: the replica may be computing it.
const headerTimeout = 5 * time.Minute

// maxBody bounds a request's body, which is held until its reply begins.
const maxBody = 32 << 20

func main() {
	fleet, err := newFleet(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{
		Addr:              "localhost:8080",
		Handler:           newProxy(router.New(strategy, fleet, router.Options{}), httpproxy.NewTransport()),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute, // of a request with its body; replies take as long as they take
		IdleTimeout:       2 * time.Minute,
	}
	log.Fatal(srv.ListenAndServe())
}

// newFleet returns the replicas with these base URLs.
func newFleet(urls []string) (*loadview.View, error) {
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
	return fleet, fleet.Set(members)
}

// newProxy returns the proxy over the targets of r.
func newProxy(r *router.Router, next http.RoundTripper) http.Handler {
	decoder, err := contentcoding.New(contentcoding.Config{MaxBytes: maxBody})
	if err != nil {
		panic(err) // maxBody is not negative
	}
	transport, err := httpproxy.New(httpproxy.Config{
		Router: r, Transport: next, MaxBody: maxBody, Decode: decoder.Decode, HeaderTimeout: headerTimeout,
	})
	if err != nil {
		panic(err) // there is a Router
	}
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header.Del("Connection")
			p.Out.Header.Del("Upgrade") // a tunnel has no prompt
		},
		ModifyResponse: func(resp *http.Response) error { // whatever the host does with a reply and its choice
			if l := httpproxy.LeaseOf(resp); l != nil {
				resp.Header.Set("X-Target", l.Decision().Target.ID)
			}
			return nil
		},
		ErrorHandler: transport.ServeError,
	}
}
