package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// server runs a Handler until its ctx is done.
type server struct {
	log   *slog.Logger
	drain time.Duration // to go on listening, so that a balancer of gateways sees the 503
	grace time.Duration // for replies to finish after that
	tls   *tls.Config   // nil: none
}

// protocols returns HTTP/1 and HTTP/2: with TLS, and without it for clients that begin with its preface.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	p.SetHTTP2(true)
	return p
}

func (s *server) run(ctx context.Context, ln net.Listener, h *Handler) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		Protocols:         protocols(),
		// A peer of HTTP/2 that is gone is noticed between requests too.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 250, SendPingTimeout: time.Minute, PingTimeout: 15 * time.Second},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() {
		if s.tls != nil {
			srv.TLSConfig = s.tls
			failed <- srv.ServeTLS(ln, "", "")
			return
		}
		failed <- srv.Serve(ln)
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	h.Drain()
	s.log.Info("draining", "requests", h.Active())
	delay := s.drain
	if errors.Is(context.Cause(ctx), errInterrupt) {
		delay = 0
	}
	select {
	case err := <-failed:
		return err
	case <-time.After(delay):
	}
	stop, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	err := srv.Shutdown(stop)
	if err != nil {
		s.log.Warn("ending requests that have not finished", "requests", h.Active())
		err = errors.Join(fmt.Errorf("requests were cut off: %w", err), srv.Close())
	}
	if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
