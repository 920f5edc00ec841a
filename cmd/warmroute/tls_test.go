package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/vllmtest"
)

// TestTLS: the gateway listens with TLS, for both versions of HTTP, and reaches an engine that wants a certificate, for
// requests, its metrics and its health. An engine with another authority is not trusted.
func TestTLS(t *testing.T) {
	signalled(t)
	engine := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6, ReplyTokens: 2})
	t.Cleanup(engine.Close)
	base, err := url.Parse(engine.URL)
	if err != nil {
		t.Fatal(err)
	}
	var pages, probes atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(base)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			pages.Add(1)
		case "/health":
			probes.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	der, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := write("cert.pem", "CERTIFICATE", srv.Certificate().Raw), write("key.pem", "PRIVATE KEY", der)
	p := start(t, "-target", srv.URL, "-engine-ca", cert, "-engine-cert", cert, "-engine-key", key, "-tls-cert", cert,
		"-tls-key", key, "-scrape", "100ms", "-probe", "100ms")
	trusted := x509.NewCertPool()
	trusted.AddCert(srv.Certificate())
	for _, two := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: two}
		client := &http.Client{Transport: tr}
		resp, err := client.Post(strings.Replace(p.url, "http:", "https:", 1)+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"hello","max_tokens":2}`))
		if err != nil {
			t.Fatal(err)
		}
		if b := readAll(t, resp.Body); resp.StatusCode != http.StatusOK || resp.ProtoMajor == 2 != two {
			t.Errorf("HTTP/2 %t: %s %s: %s", two, resp.Proto, resp.Status, b)
		}
		resp.Body.Close()
		tr.CloseIdleConnections()
	}
	eventually(t, "the metrics and the health are read", func() bool { return pages.Load() > 0 && probes.Load() > 1 })

	q := start(t, "-target", srv.URL)
	eventually(t, "an authority that is not trusted is named at the start", func() bool {
		return strings.Contains(q.log.String(), "a target does not answer") && strings.Contains(q.log.String(), "certificate")
	})
	for _, args := range [][]string{
		{"-tls-cert", cert}, {"-tls-cert", "none.pem", "-tls-key", key}, {"-engine-ca", "none.pem"}, {"-engine-cert", cert},
	} {
		var out logged
		if err := run(t.Context(), append([]string{"-target", srv.URL}, args...), &out, &out); exit(err, &out) != 2 {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestProfiles: profiles are on the debug address alone, if they were asked for, and not for a foreign name.
func TestProfiles(t *testing.T) {
	debug, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "-target", "http://127.0.0.1:1", "-debug", debug, "-pprof")
	status := func(at, host string) int {
		r, err := http.NewRequest(http.MethodGet, at+"/debug/pprof/cmdline", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := status("http://"+debug, debug); got != 200 {
		t.Error(got)
	}
	if got := status("http://"+debug, "localhost"); got != 200 {
		t.Error("localhost:", got)
	}
	if got := status("http://"+debug, "evil.example"); got != 403 {
		t.Error("a foreign name:", got)
	}
	if got := status(p.url, ""); got != 404 {
		t.Error("the clients' address:", got)
	}
	var out logged
	if err := run(t.Context(), []string{"-target", "http://a:1", "-pprof"}, &out, &out); exit(err, &out) != 2 {
		t.Error(err)
	}
}
