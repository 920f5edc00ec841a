// Command reverseproxy is net/http/httputil.ReverseProxy with a Transport that
// picks the replica: proxy.go is all of it, this file is the program around.
//
//	reverseproxy http://vllm-1:8000 http://vllm-2:8000
package main

import (
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/warmroute/router"
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
		Handler:           newProxy(router.New(strategy, fleet, router.Options{}), newTransport()),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute, // of a request with its body; replies take as long as they take
		IdleTimeout:       2 * time.Minute,
	}
	log.Fatal(srv.ListenAndServe())
}

// newTransport returns the transport that sends to the replicas. HTTP_PROXY and
// the variables like it are for the way out, not for them.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	t.ResponseHeaderTimeout = headerTimeout
	t.MaxIdleConnsPerHost, t.DisableCompression = 1024, true
	return t
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
	return http.MaxBytesHandler(decoded(&httputil.ReverseProxy{
		Transport: transport{r, next},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Body = p.In.Body // never nil
			p.Out.Header.Del("Connection")
			p.Out.Header.Del("Upgrade") // a tunnel has no prompt
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status := http.StatusBadGateway
			if errors.Is(err, router.ErrNoTarget) {
				status = http.StatusServiceUnavailable
			}
			var tooLarge *http.MaxBytesError
			if errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), status)
		},
	}), maxBody)
}
