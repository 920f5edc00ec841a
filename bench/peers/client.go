package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// client sends one request at a time over one connection. An ordinary one leaves
// acknowledging to the kernel, which waits up to 40 ms for data to send with it.
// If a router writes a reply in parts without TCP_NODELAY, the next part waits for
// the acknowledgement. A quick one makes the kernel acknowledge immediately,
// before each read, and so measures the time without this wait.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string, quick bool) *client {
	t := &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}
	if quick {
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return quickConn{c}, nil
		}
	}
	return &client{url: url + "/v1/chat/completions", http: &http.Client{Transport: t, Timeout: 20 * time.Second}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// reply has a client's measurements of one reply.
type reply struct {
	took    time.Duration // from sending to its end
	silence time.Duration // the longest between two parts of it
}

func (c *client) send(ctx context.Context, body []byte) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	var r reply
	var all []byte
	part := make([]byte, 32<<10)
	last := time.Now()
	for {
		n, err := resp.Body.Read(part)
		now := time.Now()
		r.took, r.silence, last = now.Sub(start), max(r.silence, now.Sub(last)), now
		if all = append(all, part[:n]...); len(all) > 1<<20 {
			return reply{}, errors.New("a reply of more than 1 MiB")
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return reply{}, err
		}
	}
	if resp.StatusCode != http.StatusOK || !bytes.HasSuffix(all, []byte("data: [DONE]\n\n")) {
		return reply{}, fmt.Errorf("status %d, not a whole reply: %.200s", resp.StatusCode, all)
	}
	return r, nil
}

// quickConn is a connection with a peer that never waits for an acknowledgement.
type quickConn struct{ net.Conn }

func (c quickConn) Read(b []byte) (int, error) {
	acknowledge(c.Conn)
	n, err := c.Conn.Read(b)
	acknowledge(c.Conn)
	return n, err
}
