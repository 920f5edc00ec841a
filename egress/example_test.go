package egress_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/warmroute/router/egress"
)

// An endpoint from a file is checked when it is read, in any spelling that some
// resolver takes for an address.
func ExamplePolicy_CheckURL() {
	p := egress.Policy{BlockPrivate: true, AllowHosts: []string{"10.0.0.7"}}
	for _, u := range []string{
		"http://vllm-1:8000/metrics", // a name: looked at when it is dialled
		"http://10.0.0.7:8000/metrics",
		"http://10.0.0.8:8000/metrics",
		"tcp://169.254.169.254:80",
		"http://2852039166/latest", // the same in decimal
	} {
		var denied *egress.DeniedError
		switch err := p.CheckURL(u); {
		case err == nil:
			fmt.Println("allowed:", u)
		case errors.As(err, &denied):
			fmt.Println("denied: ", u, denied.Addr, denied.Range)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// allowed: http://vllm-1:8000/metrics
	// allowed: http://10.0.0.7:8000/metrics
	// denied:  http://10.0.0.8:8000/metrics 10.0.0.8 private
	// denied:  tcp://169.254.169.254:80 169.254.169.254 link-local
	// denied:  http://2852039166/latest 169.254.169.254 link-local
}

// Every connection is checked once more, on the address that is really dialled.
// DialContext fits http.Transport.
func ExamplePolicy_Dialer() {
	srv := httptest.NewServer(http.NotFoundHandler()) // on loopback
	defer srv.Close()

	for _, p := range []egress.Policy{{}, {BlockLoopback: true}} {
		client := http.Client{Transport: &http.Transport{DialContext: p.Dialer().DialContext, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, srv.URL, nil)
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(req)
		var denied *egress.DeniedError
		if errors.As(err, &denied) {
			fmt.Println("denied:", denied.Range)
			continue
		}
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 404 Not Found
	// denied: loopback
}

// A client that resolves names by itself asks about each address.
func ExamplePolicy_CheckAddr() {
	var p egress.Policy
	fmt.Println(p.CheckAddr(netip.MustParseAddr("10.0.0.1")))
	fmt.Println(p.CheckAddr(netip.MustParseAddr("::ffff:169.254.169.254")) != nil)
	// Output:
	// <nil>
	// true
}

// An entry that can match no host is most likely a mistake.
func ExamplePolicy_Validate() {
	fmt.Println(egress.Policy{AllowHosts: []string{"vllm-1:8000"}}.Validate())
	// Output: egress: AllowHosts[0] is "vllm-1:8000"; it must be a host name or an address, without port and pattern
}
