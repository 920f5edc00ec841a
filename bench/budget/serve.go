package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/warmroute/router/bench/loadgen"
)

// serveEngines is the process of engines.
func serveEngines(n int, delay time.Duration) error {
	return loadgen.ServeEngines(n, loadgen.EngineConfig{Delay: delay}, os.Stdin, os.Stdout)
}

// serveProxy is the process of a plain reverse proxy: the standard library's,
// round robin, until standard input ends or SIGTERM.
func serveProxy(addr string, engines []string) error {
	urls := make([]*url.URL, len(engines))
	for i, e := range engines {
		u, err := url.Parse(e)
		if err != nil {
			return err
		}
		urls[i] = u
	}
	if len(urls) == 0 {
		return errors.New("-serve-proxy needs the engines' URLs")
	}
	var turn atomic.Uint64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/", &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(urls[turn.Add(1)%uint64(len(urls))]) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	})
	s := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: time.Minute}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { s.Close() })
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
