package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	engineCount = 8
	events      = 16 // of text in a reply
	maxBody     = 16 << 20
)

// fleet is engines like those of package loadgen, for requests that a router
// rewrote: they always stream, whatever the body's order of fields. How they
// answer can be changed while they run.
type fleet struct {
	delay atomic.Int64 // before the reply, in ns
	gap   atomic.Int64 // between two writes of one event each, in ns; 0: the reply is one write
	seq   atomic.Uint64
}

const modePath = "/bench/mode"

// setMode sets how the engines behind u answer from now on.
func setMode(u string, delay, gap time.Duration) error {
	resp, err := http.PostForm(u+modePath, url.Values{"delay": {delay.String()}, "gap": {gap.String()}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("setting the engines' mode: %s", resp.Status)
	}
	return nil
}

func (f *fleet) mode(w http.ResponseWriter, r *http.Request) {
	delay, err1 := time.ParseDuration(r.FormValue("delay"))
	gap, err2 := time.ParseDuration(r.FormValue("gap"))
	if err := errors.Join(err1, err2); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.delay.Store(int64(delay))
	f.gap.Store(int64(gap))
}

// handler serves engine i.
func (f *fleet) handler(i int) http.Handler {
	const text = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word " +
		"\"}}]}\n\n"
	const end = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	rest := strings.Repeat(text, events) + end
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model"}]}`, model)
	})
	mux.HandleFunc("POST "+modePath, f.mode)
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// Package loadgen looks for an id of this form in a reply.
		first := fmt.Sprintf(
			"data: {\"id\":\"bench-%d-%d\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n", i, f.seq.Add(1))
		if !pause(r, f.delay.Load()) {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		gap := f.gap.Load()
		if gap == 0 {
			io.WriteString(w, first+rest)
			return
		}
		out := http.NewResponseController(w)
		io.WriteString(w, first)
		for range events {
			if out.Flush() != nil || !pause(r, gap) {
				return
			}
			io.WriteString(w, text)
		}
		io.WriteString(w, end)
	})
	return mux
}

// pause waits for ns and reports whether the client is still there.
func pause(r *http.Request, ns int64) bool {
	if ns <= 0 {
		return true
	}
	select {
	case <-time.After(time.Duration(ns)):
		return true
	case <-r.Context().Done():
		return false
	}
}

// serveEngines runs n engines, writes their URLs to out, a line each, and goes on
// until in ends: when the process that started this one is gone.
func serveEngines(n int, in io.Reader, out io.Writer) error {
	f := new(fleet)
	var urls []string
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s := &http.Server{Handler: f.handler(i), ReadHeaderTimeout: time.Minute}
		defer s.Close()
		go s.Serve(l)
		urls = append(urls, "http://"+l.Addr().String())
	}
	if _, err := fmt.Fprintln(out, strings.Join(urls, "\n")); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, in)
	return err
}
