package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// liar is a replica that cycles through invalid answers.
type liar struct {
	url string
	ln  net.Listener
	n   atomic.Int64

	mu    sync.Mutex
	open  map[net.Conn]bool // nil: closed
	conns sync.WaitGroup
}

const event = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"

// lies are whole answers; the connection ends after each.
var lies = []string{
	"",
	"\x00\x01\x02\x03 this is no HTTP at all\n\n\n",
	"HTTP/1.1 999 \r\nContent-Length: -5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{\"choices\":[",
	event + "Transfer-Encoding: chunked\r\n\r\nzzz\r\n",
	event + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
	"HTTP/1.1 200 OK\r\nX-Much: " + strings.Repeat("x", 300<<10) + "\r\n\r\n",
	// Whole, but the text does not match its header.
	"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n{\"usage\":{\"prompt_tokens\":-",
	event + "Content-Length: 74\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":1e999}}],\"usage\":[]}\n\ndata: " +
		"\xff\xfe{{\n\n\n\n",
	"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
	event + "\r\n" + "data: " + strings.Repeat("[", 200<<10),
	"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
}

func newLiar() (*liar, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &liar{url: "http://" + ln.Addr().String(), ln: ln, open: map[net.Conn]bool{}}
	l.conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			if l.open == nil {
				l.mu.Unlock()
				c.Close()
				return
			}
			l.open[c] = true
			l.conns.Go(func() { l.answer(c) })
			l.mu.Unlock()
		}
	})
	return l, nil
}

func (l *liar) answer(c net.Conn) {
	defer func() {
		c.Close()
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
	}()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if r.URL.Path == "/health" { // otherwise nobody would send it more
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		return
	}
	_, _ = io.WriteString(c, lies[int(l.n.Add(1))%len(lies)])
}

func (l *liar) close() {
	l.ln.Close()
	l.mu.Lock()
	for c := range l.open {
		c.Close()
	}
	l.open = nil
	l.mu.Unlock()
	l.conns.Wait()
}
