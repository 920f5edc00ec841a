package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/httpproxy"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // errors are the tests' own doing
	goleak.VerifyTestMain(m)
}

// host is the proxy before replicas, with all that it needs.
type host struct {
	*httptest.Server
	replicas []*vllmtest.Server
	fleet    *loadview.View
	client   *http.Client
	ended    sync.Map // stage -> *atomic.Int64
	again    atomic.Int64
}

// newHost returns a host over n replicas. next may wrap the transport.
func newHost(t testing.TB, n int, cfg vllmtest.Config, next func(http.RoundTripper) http.RoundTripper) *host {
	t.Helper()
	h := &host{}
	var urls []string
	for range n {
		s := vllmtest.NewServer(cfg)
		t.Cleanup(s.Close)
		h.replicas, urls = append(h.replicas, s), append(urls, s.URL)
	}
	var err error
	if h.fleet, err = newFleet(urls); err != nil {
		t.Fatal(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	var rt http.RoundTripper = transport
	if next != nil {
		rt = next(rt)
	}
	r := router.New(strategy, h.fleet, router.Options{Trace: router.Trace{
		Done:  func(_ context.Context, _ router.Decision, o router.Outcome) { h.stage(o.Stage).Add(1) },
		Retry: func(context.Context, router.RetryInfo) { h.again.Add(1) },
	}})
	h.Server = httptest.NewServer(newProxy(r, rt))
	h.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(func() {
		h.client.CloseIdleConnections()
		h.Close()
		h.idle(t)
	})
	return h
}

func (h *host) stage(s router.Stage) *atomic.Int64 {
	n, _ := h.ended.LoadOrStore(s, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// idle waits until nothing is in flight any more, on any count.
func (h *host) idle(t testing.TB) {
	t.Helper()
	until(t, "all counts are 0", func() bool {
		return !slices.ContainsFunc(h.fleet.Snapshot(), func(s loadview.Status) bool {
			return s.Target.Load.InFlight != 0 || s.Target.Load.Prefill != 0
		})
	})
}

// until waits for a condition that must come.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// busiest waits until a replica is at work, and returns which has most to do.
func (h *host) busiest(t testing.TB) (busiest int) {
	until(t, "a replica is at work", func() bool {
		all := h.fleet.Snapshot()
		for i, s := range all {
			if s.Target.Load.InFlight > all[busiest].Target.Load.InFlight {
				busiest = i
			}
		}
		return all[busiest].Target.Load.InFlight > 0
	})
	return busiest
}

func chat(text string, stream bool) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"stream":%t}`, text, stream)
}

// ask sends a chat and returns its reply's status and body.
func (h *host) ask(body string) (int, string, error) {
	resp, err := h.client.Post(h.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func fast() vllmtest.Config { return vllmtest.Config{TimeScale: 0.001, ReplyTokens: 20} }

func TestConversationStays(t *testing.T) {
	h := newHost(t, 4, fast(), nil)
	text := strings.Repeat("all work and no play ", 200)
	for range 6 {
		if status, body, err := h.ask(chat(text, false)); status != 200 || err != nil {
			t.Fatal(status, body, err)
		}
		text += "and another turn of it "
	}
	used := 0
	for _, r := range h.replicas {
		if s := r.Stats(); s.Requests > 0 {
			used++
			if s.CachedTokens*2 < s.PromptTokens {
				t.Errorf("%d of %d tokens were cached", s.CachedTokens, s.PromptTokens)
			}
		}
	}
	if used != 1 {
		t.Errorf("one conversation went to %d replicas", used)
	}
	until(t, "6 ended as Finished", func() bool { return h.stage(router.Finished).Load() == 6 })
}

// TestStreams shows that an event is passed on before the reply has ended.
func TestStreams(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{ReplyTokens: 20}, nil)
	resp, err := h.client.Post(h.URL+"/v1/chat/completions", "application/json", strings.NewReader(chat("hello", true)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	if n := h.fleet.Snapshot()[0].Target.Load; n.InFlight != 1 || h.replicas[0].Stats().Finished != 0 {
		t.Errorf("at the first line: %+v, %d finished", n, h.replicas[0].Stats().Finished)
	}
	done := false
	for lines.Scan() {
		done = done || lines.Text() == "data: [DONE]"
	}
	if !done || lines.Err() != nil {
		t.Errorf("done %t, %v", done, lines.Err())
	}
}

func TestFailover(t *testing.T) {
	for name, f := range map[string]vllmtest.Faults{
		"refused": {Refuse: true}, "500": {Status: 500}, "429": {Status: 429},
		"503 with Retry-After": {Status: 503, RetryAfter: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 2, fast(), nil)
			text := strings.Repeat("all work and no play ", 100)
			for i := range 4 {
				if status, body, err := h.ask(chat(text, i%2 == 0)); status != 200 || err != nil {
					t.Fatal(i, status, body, err)
				}
				if i == 0 { // also selects the next one
					warm := slices.IndexFunc(h.replicas, func(r *vllmtest.Server) bool { return r.Stats().Requests > 0 })
					if err := h.replicas[warm].SetFaults(f); err != nil {
						t.Fatal(err)
					}
				}
			}
			if h.again.Load() == 0 {
				t.Error("none was sent again")
			}
		})
	}
}

// TestOwnWords passes a replica's error on: that of a model that neither has, which
// is asked of both, that of a wrong request, and that of the last one of a fleet that
// is full.
func TestOwnWords(t *testing.T) {
	h := newHost(t, 2, vllmtest.Config{TimeScale: 0.001, Model: "m"}, nil)
	if status, body, err := h.ask(`{"model":"other","messages":[{"role":"user","content":"x"}]}`); status != 404 ||
		!strings.Contains(body, "other") || err != nil {
		t.Error(status, body, err)
	}
	if a, b := h.replicas[0].Stats(), h.replicas[1].Stats(); a.Requests != 1 || b.Requests != 1 {
		t.Error("another replica may have had the model", a.Requests, b.Requests)
	}
	if status, body, err := h.ask(`{"model":"m","messages":7}`); status != 400 || err != nil {
		t.Error(status, body, err)
	}
	if a, b := h.replicas[0].Stats(), h.replicas[1].Stats(); a.Requests+b.Requests != 3 {
		t.Error("a wrong request was sent again")
	}
	for _, r := range h.replicas {
		r.SetFaults(vllmtest.Faults{Status: 503})
	}
	if status, body, err := h.ask(chat("x", false)); status != 503 || !strings.Contains(body, `"error"`) || err != nil {
		t.Error(status, body, err)
	}
	for _, r := range h.replicas {
		r.SetFaults(vllmtest.Faults{Refuse: true})
	}
	status, body, err := h.ask(chat("x", false))
	for err == nil && strings.Contains(body, "2 not ready") { // both are still held back for the 503
		status, body, err = h.ask(chat("x", false))
	}
	if status != 502 || err != nil {
		t.Error(status, body, err)
	}
	h.fleet.Set(nil)
	if status, body, err := h.ask(chat("x", false)); status != 503 || err != nil {
		t.Error(status, body, err)
	}
	if status, body, _ := h.ask(strings.Repeat("x", maxBody+1)); status != 413 && status != 0 { // 0: it was still writing
		t.Error(status, body)
	}
	resp, err := h.client.Get(h.URL + "/v1/models") // no body at all
	if err != nil || resp.StatusCode != 503 {
		t.Error(resp, err)
	}
	resp.Body.Close()
}

func TestClientGoesAway(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{ReplyTokens: 4000}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/chat/completions", strings.NewReader(chat("x", true)))
	resp, err := h.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	h.idle(t)
	until(t, "the replica sees it", func() bool { return h.replicas[0].Stats().Aborted == 1 })
	until(t, "1 ended as Canceled", func() bool { return h.stage(router.Canceled).Load() == 1 })

	// Before any reply: the replica hangs.
	h.replicas[0].SetFaults(vllmtest.Faults{Hang: true})
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/chat/completions", strings.NewReader(chat("x", true)))
		_, err := h.client.Do(req)
		gone <- err
	}()
	until(t, "it is in flight", func() bool { return h.fleet.Snapshot()[0].Target.Load.InFlight == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	h.idle(t)
}

// TestBrokenReply counts a reply that broke off as failed; the client sees it too.
func TestBrokenReply(t *testing.T) {
	h := newHost(t, 1, fast(), nil)
	h.replicas[0].SetFaults(vllmtest.Faults{CutAfter: 3})
	if _, _, err := h.ask(chat("x", true)); err == nil {
		t.Error("a reply that broke off looks complete")
	}
	h.idle(t)
	until(t, "1 ended as Failed", func() bool { return h.stage(router.Failed).Load() == 1 })
}

type panics struct{ http.RoundTripper }

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("from a transport") }

func TestPanic(t *testing.T) {
	h := newHost(t, 1, fast(), func(rt http.RoundTripper) http.RoundTripper { return panics{rt} })
	if _, _, err := h.ask(chat("x", false)); err == nil {
		t.Error("a reply came")
	}
	h.idle(t)
	until(t, "1 ended as Canceled", func() bool { return h.stage(router.Canceled).Load() == 1 })
}

// TestClose settles by Close alone, which no context helps.
func TestClose(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{ReplyTokens: 4000}, nil)
	strategy, _ := leastwork.New(leastwork.Config{})
	next := &http.Transport{}
	defer next.CloseIdleConnections()
	tr, err := httpproxy.New(httpproxy.Config{Router: router.New(strategy, h.fleet, router.Options{}), Transport: next})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(context.WithoutCancel(t.Context()), "POST", "http://any/v1/chat/completions",
		strings.NewReader(chat("x", true)))
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if n := h.fleet.Snapshot()[0].Target.Load.InFlight; n != 1 {
		t.Errorf("%d in flight", n)
	}
	resp.Body.Close()
	if n := h.fleet.Snapshot()[0].Target.Load.InFlight; n != 0 {
		t.Errorf("%d in flight after Close", n)
	}
}

// TestKill kills one of four replicas under load. A request with a reply that
// had not begun must not fail; one in the midst of its reply can be saved by
// nobody.
func TestKill(t *testing.T) {
	h := newHost(t, 4, vllmtest.Config{TimeScale: 0.05, ReplyTokens: 20}, nil)
	const clients, each = 8, 30
	var wg sync.WaitGroup
	var sent, failed, broke, victim atomic.Int64
	for c := range clients {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprintf("client %d says ", c), 40)
			for i := range each {
				if sent.Add(1) == clients*each/3 {
					v := h.busiest(t)
					victim.Store(int64(v))
					h.replicas[v].SetFaults(vllmtest.Faults{Refuse: true})
					h.replicas[v].Restart()
				}
				text += fmt.Sprint(" turn ", i)
				status, body, err := h.ask(chat(text, c%2 == 0))
				switch {
				case err == nil && status == 200:
				case status == 200 && len(body) > 0: // it had begun
					broke.Add(1)
				default:
					failed.Add(1)
					t.Logf("%d %q %v", status, body, err)
				}
			}
		})
	}
	wg.Wait()
	h.idle(t)
	t.Logf("reverseproxy: one of four killed: %d requests, %d sent again, %d failed that another could serve, %d broke "+
		"off in the midst",
		sent.Load(), h.again.Load(), failed.Load(), broke.Load())
	if failed.Load() != 0 || h.again.Load()+broke.Load() == 0 {
		t.Errorf("%d failed, %d sent again", failed.Load(), h.again.Load())
	}
	if s := h.replicas[victim.Load()].Stats(); s.Restarts != 1 || s.Finished == 0 {
		t.Errorf("who was killed: %+v", s)
	}
}

// TestAddedLatency logs what the choice adds at one client: the same proxy to one
// replica, with the plain transport and with ours, in turns.
func TestAddedLatency(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{Instant: true, ReplyTokens: 20}, nil)
	u, _ := url.Parse(h.replicas[0].URL)
	next := &http.Transport{MaxIdleConnsPerHost: 64}
	defer next.CloseIdleConnections()
	plain := httptest.NewServer(&httputil.ReverseProxy{Transport: next,
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(u) }})
	defer plain.Close()

	body := chat(strings.Repeat("all work and no play ", 700), true) // 14 KB
	var took [2][]time.Duration
	for i := range 2 * 400 {
		base := []string{plain.URL, h.URL}[i%2]
		start := time.Now()
		resp, err := h.client.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if i%2 == 0 && err != nil {
			// The plain one has the client's body under way while the reply comes,
			// and now and then its transport closes the connection at that.
			t.Logf("the plain proxy lost a reply: %v", err)
			continue
		}
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp.Status, err)
		}
		took[i%2] = append(took[i%2], time.Since(start))
	}
	for i := range took {
		slices.Sort(took[i])
	}
	without, with := took[0][len(took[0])/2], took[1][len(took[1])/2]
	t.Logf("reverseproxy: p50 at one client: %v without, %v with, added %v", without, with, with-without)
}

// A status below 100, at which net/http's server would panic, is a replica's failure.
func TestNoStatus(t *testing.T) {
	h := newHost(t, 2, fast(), func(next http.RoundTripper) http.RoundTripper { return noStatus{next, new(atomic.Int64)} })
	if status, body, err := h.ask(chat("x", false)); status != 200 || err != nil {
		t.Error(status, body, err)
	}
	if n := h.again.Load(); n != 1 {
		t.Errorf("sent again %d times", n)
	}
}

// noStatus gives the first reply an impossible status.
type noStatus struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (s noStatus) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err == nil && s.n.Add(1) == 1 {
		resp.StatusCode = 7
	}
	return resp, err
}

// The program's transport ignores the proxies that the environment names, and waits
// for no header for ever.
func TestHeaderTimeout(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	tr := httpproxy.NewTransport()
	t.Cleanup(tr.CloseIdleConnections)
	if tr.Proxy != nil {
		t.Errorf("%+v", tr)
	}
	h := newHost(t, 2, vllmtest.Config{TimeScale: 100}, func(http.RoundTripper) http.RoundTripper {
		tr.ResponseHeaderTimeout = 50 * time.Millisecond
		return tr
	})
	if status, body, err := h.ask(chat("x", false)); status != 504 && status != 502 || err != nil {
		t.Error(status, body, err)
	}
	if f, a := h.stage(router.Failed).Load(), h.again.Load(); f != 1 || a != 0 {
		t.Errorf("%d failed, %d were sent again", f, a)
	}
}
