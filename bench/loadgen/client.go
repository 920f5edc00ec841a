package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// Client sends a workload's requests over HTTP, streamed, and reads each reply
// to its end. It is safe for concurrent use.
type Client struct {
	url  string
	w    *workload.Workload
	http *http.Client
	pool sync.Pool
}

// NewClient returns a Client for the router, or the engine, at the base URL url.
// It keeps as many connections open as it is given requests at once.
func NewClient(url string, w *workload.Workload) *Client {
	return &Client{url: url + "/v1/chat/completions", w: w, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
		Timeout:   30 * time.Second,
	}}
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Send sends r. A reply other than one of this package's engines, whole and with
// status 200, is an error.
func (c *Client) Send(ctx context.Context, r workload.Request) (Reply, error) {
	buf, _ := c.pool.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	body := c.w.AppendBody((*buf)[:0], r, true)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	reply := make([]byte, 0, 4096)
	var first time.Duration
	for {
		if len(reply) == cap(reply) {
			if len(reply) >= maxBody {
				return Reply{}, fmt.Errorf("loadgen: a reply of more than %d bytes", maxBody)
			}
			reply = append(reply, 0)[:len(reply)]
		}
		n, err := resp.Body.Read(reply[len(reply):cap(reply)])
		reply = reply[:len(reply)+n]
		if first == 0 && n > 0 {
			first = time.Since(start)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return Reply{}, err
		}
	}
	if resp.StatusCode != http.StatusOK {
		return Reply{}, fmt.Errorf("loadgen: status %d: %.200s", resp.StatusCode, reply)
	}
	// The transport reads a request until the server has answered, so the buffer
	// is free only after the whole reply.
	*buf = body
	c.pool.Put(buf)
	engine, seq, ok := parseID(string(reply))
	if !ok || !bytes.HasSuffix(reply, []byte("data: [DONE]\n\n")) {
		return Reply{}, fmt.Errorf("loadgen: not an engine's whole reply: %.200s", reply)
	}
	return Reply{Engine: engine, Seq: seq, First: first}, nil
}
