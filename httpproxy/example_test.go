package httpproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/httpproxy"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

// bare is the proxy of the standard library.
func bare(target string) http.Handler {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	tr := httpproxy.NewTransport()
	return &httputil.ReverseProxy{Transport: tr, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
}

func two() (*router.Router, func(), error) {
	a := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.01, ReplyTokens: 4})
	b := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.01, ReplyTokens: 4})
	stop := func() { a.Close(); b.Close() }
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		return nil, stop, err
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, stop, err
	}
	return router.New(strategy, fleet, router.Options{}), stop,
		fleet.Set([]loadview.Member{{ID: a.URL}, {ID: b.URL}})
}

func ExampleNew() {
	r, stop, err := two()
	defer stop()
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy, err := httpproxy.New(httpproxy.Config{Router: r})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(proxy) // or http.ListenAndServe("localhost:8080", proxy)
	defer srv.Close()
	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"messages":[{"role":"user","content":"Why is the sky blue?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, strings.Contains(string(b), `"choices"`), err)
	// Output: 200 OK true <nil>
}

// A host with a ReverseProxy of its own takes the Proxy as its Transport.
func ExampleProxy_RoundTrip() {
	r, stop, err := two()
	defer stop()
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := httpproxy.New(httpproxy.Config{Router: r})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport, Rewrite: func(*httputil.ProxyRequest) {}, FlushInterval: -1,
		ErrorHandler: transport.ServeError,
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Set("X-Reason", string(httpproxy.LeaseOf(resp).Decision().Reason))
			return nil
		},
	})
	defer srv.Close()
	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"messages":[{"role":"user","content":"Why is the sky blue?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status, resp.Header.Get("X-Reason") != "")
	// Output: 200 OK true
}

func ExampleStatusOf() {
	status, wait, message := httpproxy.StatusOf(&router.NoTargetError{})
	fmt.Println(status, wait, message)
	// Output: 503 1s no engine is ready
}

func ExampleNewTransport() {
	t := httpproxy.NewTransport()
	t.MaxConnsPerHost = 256 // to one target
	fmt.Println(t.Proxy == nil, t.DisableCompression)
	// Output: true true
}
