package disagg_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

// sidecar is in front of a decode engine, as llm-d's is: it has the prompt computed at the address of the header, and
// passes the engine's reply on. A request without the header is the engine's alone. A failed prefill is its reply.
type sidecar struct {
	*httptest.Server
	split atomic.Int64
}

func newSidecar(t *testing.T, engine string) *sidecar {
	s := new(sidecar)
	send := func(w http.ResponseWriter, r *http.Request, base string, body []byte) *http.Response {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, base+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return nil
		}
		req.Header = r.Header.Clone()
		req.Header.Del(disagg.HeaderPrefiller)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return nil
		}
		return resp
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if at := r.Header.Get(disagg.HeaderPrefiller); at != "" {
			s.split.Add(1)
			b, err := disagg.NIXLPrefill(nil, body)
			if err != nil {
				t.Error(err)
			}
			resp := send(w, r, "http://"+at, b)
			if resp == nil {
				return
			}
			defer resp.Body.Close()
			reply, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				w.WriteHeader(max(resp.StatusCode, http.StatusBadGateway))
				return
			}
			if body, err = disagg.WithParams(nil, body, disagg.Params(reply)); err != nil {
				t.Error(err)
			}
		}
		resp := send(w, r, engine, body)
		if resp == nil {
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestSidecar: the decode target's sidecar gets the address of the prefill target, and no one else's; the prompt
// comes by transfer. Without a prefill target, and for a short prompt, the header is not sent.
func TestSidecar(t *testing.T) {
	hub := new(vllmtest.Hub)
	engine := func() *vllmtest.Server {
		s := vllmtest.NewServer(vllmtest.Config{
			TimeScale: 0.001, ReplyTokens: 8, Transfer: &vllmtest.Transfer{Hub: hub, Protocol: "nixl"},
		})
		t.Cleanup(s.Close)
		return s
	}
	p, d := engine(), engine()
	side := newSidecar(t, d.URL)
	roles := map[string]disagg.Role{p.URL: disagg.Prefill, side.URL: disagg.Decode}
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Set([]loadview.Member{{ID: p.URL}, {ID: side.URL}}); err != nil {
		t.Fatal(err)
	}
	st, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	split, err := disagg.New(disagg.Config{
		Router: router.New(st, view, router.Options{Backoff: -1, FailOpen: true}), Protocol: disagg.Sidecar,
		Place: func(t router.Target) disagg.Place { return disagg.Place{Role: roles[t.ID]} },
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, view: view, split: split, names: map[string]string{p.URL: "p", side.URL: "d"},
		at: map[string]*vllmtest.Server{"p": p, "d": d}}
	ask := func(b []byte) answer {
		t.Helper()
		a, err := f.ask(t.Context(), b)
		if err != nil || a.text == "" {
			t.Fatal(a, err)
		}
		f.idle()
		return a
	}
	b := body("hello", 4000)
	if got := ask(b); got.text != alone(t, b).text {
		t.Errorf("the text is %q", got.text)
	}
	if s := d.Stats(); float64(s.ExternalTokens) < 0.99*float64(s.PromptTokens) || side.split.Load() != 1 ||
		hub.Pinned() != 0 {
		t.Errorf("%+v, %d split", s, side.split.Load())
	}
	ask(body("short", 10))
	if n := side.split.Load(); n != 1 {
		t.Errorf("%d split, with a short one", n)
	}
	if err := p.SetFaults(vllmtest.Faults{Refuse: true}); err != nil {
		t.Fatal(err)
	}
	if a := ask(body("alone", 4000)); a.tries != 2 { // the decode target alone, as no other prefill target is there
		t.Errorf("%d tries", a.tries)
	}
	if s := split.Stats(); s.Split != 2 || s.Skipped[disagg.SkipShort] != 1 {
		t.Errorf("%+v", s)
	}
	// A client's headers reach no engine.
	h := http.Header{disagg.HeaderPrefiller: {"10.0.0.1:1"}, disagg.HeaderSource: {"10.0.0.1:2"}}
	pr, err := prompt.FromRequest(path, http.Header{}, body("x", 10))
	if err != nil {
		t.Fatal(err)
	}
	err = split.Do(t.Context(), pr, disagg.Request{Path: path, Header: h, Body: body("x", 10)},
		func(_ context.Context, a *disagg.Attempt) (router.Outcome, error) {
			for k := range a.Header {
				if strings.Contains(strings.ToLower(k), "host-port") {
					t.Errorf("the engine gets %s", k)
				}
			}
			return router.Outcome{Status: 200}, nil
		})
	if err != nil {
		t.Error(err)
	}
}
