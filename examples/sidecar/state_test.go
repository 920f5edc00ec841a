package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/warmroute/router/internal/statetest"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/vllmtest"
)

// caller is a proxy that asks the sidecar. It sends each request where the sidecar says, and reports the reply's
// beginning before it passes it on.
type caller struct {
	t *testing.T
	h *host
}

func (c caller) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	in := map[string]any{"path": r.URL.Path}
	if json.Valid(body) {
		in["body"] = json.RawMessage(body)
	}
	var p pickReply
	if status, err := c.h.post("/pick", in, &p); err != nil || status != 200 {
		c.t.Errorf("pick: %d %v", status, err)
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.Target+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.h.engines.Do(out)
	if err != nil {
		c.done(doneRequest{Lease: p.Lease, Error: err.Error()})
		return nil, err
	}
	resp.Body = &called{c: c, body: resp.Body, done: doneRequest{Lease: p.Lease, Status: resp.StatusCode}}
	return resp, nil
}

func (c caller) done(d doneRequest) {
	var out doneReply
	if status, err := c.h.post("/done", d, &out); err != nil || status != 200 {
		c.t.Errorf("done: %d %v", status, err)
	}
}

// called is a reply's body.
type called struct {
	c     caller
	body  io.ReadCloser
	done  doneRequest
	ended bool
}

func (b *called) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.done.Reply += string(p[:n])
	if err == nil {
		begun := b.done
		begun.Stage = "first_token"
		b.c.done(begun)
	} else if !b.ended {
		b.ended = true
		b.c.done(b.done)
	}
	return n, err
}

func (b *called) Close() error {
	if !b.ended {
		b.ended = true
		b.done.Stage = "canceled"
		b.c.done(b.done)
	}
	return b.body.Close()
}

// TestStateStays: a request that names a response, a conversation, a file or a medium goes to the engine that has it.
func TestStateStays(t *testing.T) {
	h := newHost(t, 0, vllmtest.Config{}, Config{})
	var engines []*statetest.Engine
	var members []loadview.Member
	for _, name := range []string{"e0", "e1", "e2", "e3"} {
		e := statetest.New(t, name)
		engines, members = append(engines, e), append(members, loadview.Member{ID: e.URL})
	}
	if err := h.fleet.Set(members); err != nil {
		t.Fatal(err)
	}
	statetest.Run(t, statetest.Host{URL: "http://caller", Client: &http.Client{Transport: caller{t, h}}}, engines...)
}

// TestIDsOfTheCaller: a caller may name the ids itself, in a prompt and at the end of a request.
func TestIDsOfTheCaller(t *testing.T) {
	h := newHost(t, 4, vllmtest.Config{TimeScale: 0.01}, Config{})
	for i, id := range []string{"resp_a", "resp_b", "resp_c", "resp_d", "resp_e"} {
		var first, next pickReply
		prompt := map[string]any{"text": id}
		if _, err := h.post("/pick", map[string]any{"prompt": prompt}, &first); err != nil {
			t.Fatal(err)
		}
		var d doneReply
		if status, err := h.post("/done", doneRequest{Lease: first.Lease, Status: 200, Made: []string{id},
			CachedReported: i > 2, Reply: `{}`}, &d); err != nil || status != 200 {
			t.Fatal(status, err)
		}
		prompt = map[string]any{"text": "something else", "must": []string{id}}
		if _, err := h.post("/pick", map[string]any{"prompt": prompt}, &next); err != nil {
			t.Fatal(err)
		}
		if next.Target != first.Target || next.Reason != "state" {
			t.Errorf("%s is at %s, and the request went to %s: %s", id, first.Target, next.Target, next.Reason)
		}
		if _, err := h.post("/done", doneRequest{Lease: next.Lease, Status: 200}, &d); err != nil {
			t.Fatal(err)
		}
	}
	var e struct{ Error struct{ Message string } }
	if status, err := h.post("/done", doneRequest{Made: make([]string, maxMade+1)}, &e); err != nil || status != 400 {
		t.Errorf("too many ids: %d %v", status, err)
	}
}
