package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a service before replicas, and a caller of it who holds what is said to
// the description.
type host struct {
	*httptest.Server
	service  *Service
	fleet    *loadview.View
	replicas []*vllmtest.Server
	client   *http.Client // of the service
	engines  *http.Client
	log      *lines
}

// lines counts what is logged.
type lines struct {
	slog.Handler
	n atomic.Int64
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) Handle(context.Context, slog.Record) error {
	l.n.Add(1)
	return nil
}

func newHost(t testing.TB, n int, replica vllmtest.Config, cfg Config) *host {
	t.Helper()
	h := &host{log: &lines{Handler: slog.DiscardHandler}}
	var err error
	if h.fleet, err = loadview.New(loadview.Config{}); err != nil {
		t.Fatal(err)
	}
	var members []loadview.Member
	for range n {
		r := vllmtest.NewServer(replica)
		t.Cleanup(r.Close)
		h.replicas = append(h.replicas, r)
		members = append(members, loadview.Member{ID: r.URL})
	}
	if err := h.fleet.Set(members); err != nil {
		t.Fatal(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Router, cfg.Fleet, cfg.Log = router.New(strategy, h.fleet, router.Options{}), h.fleet, slog.New(h.log)
	if h.service, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	h.Server = httptest.NewServer(h.service)
	transport, engines := &http.Transport{MaxIdleConnsPerHost: 64}, &http.Transport{MaxIdleConnsPerHost: 64}
	h.client = &http.Client{Transport: newChecked(t, transport, h.URL)}
	h.engines = &http.Client{Transport: engines}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		engines.CloseIdleConnections()
		h.Close()
		h.service.Close()
		h.idle(t)
	})
	return h
}

func (h *host) idle(t testing.TB) {
	t.Helper()
	until(t, "all counts are 0", func() bool {
		open, _ := h.service.leases.counts()
		return open == 0 && !slices.ContainsFunc(h.fleet.Snapshot(), func(s loadview.Status) bool {
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

// post sends v, or a string as it is, and decodes the reply into out.
func (h *host) post(path string, v, out any) (int, error) {
	body, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			return 0, err
		}
		body = string(b)
	}
	resp, err := h.client.Post(h.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, json.NewDecoder(resp.Body).Decode(out)
}

// object is a JSON object of a test.
type object = map[string]any

// must is post where 200 is the only right answer.
func (h *host) must(t testing.TB, path string, v, out any) {
	t.Helper()
	var raw json.RawMessage
	status, err := h.post(path, v, &raw)
	if err != nil || status != 200 {
		t.Fatalf("%s: %d %s %v", path, status, raw, err)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
}

// refused is post where an error with this status and code is the right answer.
func (h *host) refused(t testing.TB, path string, v any, status int, code string) {
	t.Helper()
	var e struct {
		Error struct{ Code, Message string }
	}
	got, err := h.post(path, v, &e)
	if err != nil || got != status || e.Error.Code != code || e.Error.Message == "" {
		t.Errorf("%s %.80v: %d %+v %v, want %d %s", path, v, got, e, err, status, code)
	}
}

func (h *host) health(t testing.TB) (v struct{ Ready, Leases, Expired int }) {
	t.Helper()
	resp, err := h.client.Get(h.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// errBegun says that a reply broke off: nobody else could have served it.
var errBegun = errors.New("broke off in the midst")

// serve is what a gateway does with one request: pick, send, done, and again.
func (h *host) serve(body string) error {
	var p pickReply
	status, err := h.post("/pick", object{"path": "/v1/chat/completions", "body": json.RawMessage(body)}, &p)
	if err != nil || status != 200 {
		return fmt.Errorf("pick: %d %w", status, err)
	}
	for {
		done, err := h.send(&p, body)
		again := done["stage"] == "failed" && err != nil && !errors.Is(err, errBegun)
		done["retry"] = again
		var r doneReply
		if status, e := h.post("/done", done, &r); e != nil || status != 200 || !r.Settled {
			return fmt.Errorf("done: %d %+v %w", status, r, e)
		}
		if !again {
			return err
		}
		if r.Next == nil {
			return fmt.Errorf("%s: %w", r.Why, err)
		}
		p = *r.Next
	}
}

func (h *host) send(p *pickReply, body string) (object, error) {
	failed := func(status int, err error) (object, error) {
		return object{"lease": p.Lease, "stage": "failed", "status": status, "error": err.Error()}, err
	}
	resp, err := h.engines.Post(p.Target+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return failed(0, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return failed(resp.StatusCode, errors.New(resp.Status))
	}
	first := make([]byte, 512)
	n, err := resp.Body.Read(first)
	if n == 0 {
		return failed(0, err)
	}
	var r doneReply
	if status, err := h.post("/done", object{"lease": p.Lease, "stage": "first_token"}, &r); err != nil ||
		status != 200 || r.Settled {
		return failed(0, fmt.Errorf("first_token: %d %+v %w", status, r, err))
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		return failed(200, fmt.Errorf("%w: %w", errBegun, err))
	}
	return object{"lease": p.Lease, "stage": "finished", "status": 200, "reply": string(first[:n]) + string(rest)}, nil
}

func chat(text string, stream bool) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"stream":%t}`, text, stream)
}

func fast() vllmtest.Config { return vllmtest.Config{TimeScale: 0.001, ReplyTokens: 20} }

func TestConversationStays(t *testing.T) {
	h := newHost(t, 4, fast(), Config{})
	text := strings.Repeat("all work and no play ", 200)
	for i := range 6 {
		if err := h.serve(chat(text, i%2 == 0)); err != nil {
			t.Fatal(i, err)
		}
		text += "and another turn of it "
	}
	used := 0
	for _, r := range h.replicas {
		if r.Stats().Requests > 0 {
			used++
		}
	}
	if used != 1 {
		t.Errorf("one conversation went to %d replicas", used)
	}
	var p pickReply
	h.must(t, "/pick", object{"body": json.RawMessage(chat(text, false))}, &p)
	if p.Reason != router.ReasonWarm || p.Cached == 0 || p.Cached >= p.Length || p.Unit != "bytes" || p.Attempt != 1 ||
		p.DeadlineMS != 600000 {
		t.Errorf("%+v", p)
	}
	h.must(t, "/done", object{"lease": p.Lease, "stage": "canceled"}, new(doneReply))
	if v := h.health(t); v.Ready != 4 || v.Leases != 0 || v.Expired != 0 {
		t.Errorf("%+v", v)
	}
}

func TestPrompt(t *testing.T) {
	h := newHost(t, 2, fast(), Config{})
	for _, in := range []object{
		{"prompt": object{"model": "m", "session": "s", "text": "hello"}},
		{"prompt": object{"tokens": []uint32{1, 2, 3, 4294967295}}, "exclude": []string{h.replicas[0].URL}},
		{"path": "/v1/completions", "body": object{"prompt": []int{1, 2, 3}}, "headers": object{"x-session-id": "s"},
			"deadline_ms": 5000},
		{"body": []string{"not", "understood"}},
		{},
	} {
		var p pickReply
		h.must(t, "/pick", in, &p)
		if in["exclude"] != nil && (p.Target != h.replicas[1].URL || p.Length != 4 || p.Unit != "tokens") {
			t.Errorf("%v: %+v", in, p)
		}
		h.must(t, "/done", object{"lease": p.Lease, "status": 200}, new(doneReply))
	}
}

func TestRefused(t *testing.T) {
	h := newHost(t, 1, fast(), Config{MaxBody: 10_000, MaxLeases: 2, MaxDeadline: time.Hour})
	var a, b pickReply
	h.must(t, "/pick", object{}, &a)
	for _, body := range []string{`{`, `[]`, `{} {}`, `{"nonsense":1}`, `{"deadline_ms":-1}`,
		`{"deadline_ms":3600001}`, `{"prompt":{"tokens":[-1]}}`, `{"body":{},"prompt":{}}`, ``} {
		h.refused(t, "/pick", body, 400, "bad_request")
	}
	for _, body := range []string{`{"lease":1}`, `{"lease":"x","stage":"sent"}`, `{"lease":"x","status":99}`,
		`{"lease":"x","output_tokens":-1}`, `{"lease":"x","retry_after_ms":86400001}`} {
		h.refused(t, "/done", body, 400, "bad_request")
	}
	h.refused(t, "/pick", object{"exclude": make([]string, maxExclude+1)}, 400, "bad_request")
	h.refused(t, "/pick", object{"path": strings.Repeat("x", 20_000)}, 413, "too_large")
	h.refused(t, "/pick", object{"exclude": []string{a.Target}}, 503, "no_target")
	for _, stage := range []string{"finished", "first_token"} {
		h.refused(t, "/done", object{"lease": "none", "stage": stage}, 404, "no_such_lease")
	}
	h.refused(t, "/done", object{"lease": "none", "retry": true}, 404, "no_such_lease")

	h.must(t, "/pick", object{}, &b)
	h.refused(t, "/pick", object{}, 503, "too_many_leases")
	h.must(t, "/done", object{"lease": b.Lease}, new(doneReply))
	h.refused(t, "/done", object{"lease": b.Lease}, 404, "no_such_lease") // once
	h.must(t, "/pick", object{}, &b)
	h.service.Close() // ends both
	h.idle(t)
	h.refused(t, "/pick", object{}, 503, "closing")

	for i := range cap(h.service.busy) {
		h.service.busy <- struct{}{}
		if i == cap(h.service.busy)-1 {
			h.refused(t, "/pick", object{}, 503, "busy")
		}
	}
}

// TestMemory: what does not fit an account is refused by its name, and all is given back.
func TestMemory(t *testing.T) {
	budget, err := membudget.New(membudget.Config{Limit: 1 << 20, Shares: map[string]float64{
		membudget.Bodies: 0.5, membudget.Leases: 0.25,
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, 1, fast(), Config{Memory: budget})
	text := object{"prompt": object{"text": strings.Repeat("x", 80<<10)}}
	var a pickReply
	h.must(t, "/pick", text, &a)
	if used := budget.Account(membudget.Leases).Used(); used < 160<<10 {
		t.Errorf("%d bytes are reserved", used)
	}
	h.refused(t, "/pick", text, 503, "no_memory")
	h.refused(t, "/pick", object{"prompt": object{"text": strings.Repeat("x", 300<<10)}}, 413, "no_memory")
	h.must(t, "/done", object{"lease": a.Lease}, new(doneReply))
	h.must(t, "/pick", text, &a)
	h.service.Close()
	if s := budget.Stats(); s.Used != 0 {
		t.Errorf("%+v", s)
	}
}

// TestFewValues: lists and objects of small values, which take many times their bytes, are bounded in number.
func TestFewValues(t *testing.T) {
	h := newHost(t, 1, fast(), Config{})
	many := make(map[string]string)
	for i := range maxValues + 10 {
		many[fmt.Sprint(i)] = ""
	}
	list := make([]string, maxValues+10)
	nested := strings.Repeat(`[1],`, 3000) + "[1]"
	for name, body := range map[string]any{
		"headers": object{"headers": many}, "exclude": object{"exclude": list},
		"must":   object{"prompt": object{"must": list}},
		"nested": `{"exclude":[` + nested + `]}`,
	} {
		t.Log(name)
		h.refused(t, "/pick", body, 400, "bad_request")
	}
	h.refused(t, "/done", object{"lease": "x", "made": list}, 400, "bad_request")
	for i := range 20 {
		delete(many, fmt.Sprint(i))
	}
	var a pickReply
	h.must(t, "/pick", object{"headers": many}, &a)
	h.must(t, "/done", object{"lease": a.Lease}, new(doneReply))
}

func TestNew(t *testing.T) {
	for field, cfg := range map[string]Config{"Router": {}, "Fleet": {Router: new(router.Router)},
		"MaxBody": {Router: new(router.Router), Fleet: new(loadview.View), MaxBody: -1}} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestForgotten: a lease that nobody ends does so by its own deadline, which is
// reported and counted, and no other lease does.
func TestForgotten(t *testing.T) {
	h := newHost(t, 1, fast(), Config{})
	var kept, lost pickReply
	h.must(t, "/pick", object{}, &kept)
	h.must(t, "/pick", object{"deadline_ms": 20}, &lost)
	until(t, "it expires", func() bool { return h.health(t).Expired == 1 })
	until(t, "it is told", func() bool { return h.log.n.Load() == 1 })
	h.refused(t, "/done", object{"lease": lost.Lease, "stage": "finished"}, 410, "lease_expired")
	h.refused(t, "/done", object{"lease": lost.Lease, "stage": "first_token"}, 410, "lease_expired")
	until(t, "one is open", func() bool { return h.health(t).Leases == 1 })
	if n := h.fleet.Snapshot()[0].Target.Load.InFlight; n != 1 {
		t.Errorf("%d in flight", n)
	}
	h.must(t, "/done", object{"lease": kept.Lease, "stage": "finished"}, new(doneReply))
	if n := len(h.service.leases.past); n != 1 {
		t.Errorf("%d remembered", n)
	}
}

// TestExpiredBounded: what is remembered of those that expired has an end.
func TestExpiredBounded(t *testing.T) {
	h := newHost(t, 1, fast(), Config{})
	s := &h.service.leases
	var first string
	for i := range rememberExpired + 10 {
		l, err := h.service.cfg.Router.Route(t.Context(), router.Prompt{})
		if err == nil {
			err = s.reserve(0)
		}
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.keep(l, func() {}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = id
		}
		s.expire(id)
		s.expire(id) // does nothing
	}
	if len(s.past) != rememberExpired || s.expired != rememberExpired+10 {
		t.Errorf("%d remembered of %d", len(s.past), s.expired)
	}
	h.refused(t, "/done", object{"lease": first}, 404, "no_such_lease")
}

func TestRetry(t *testing.T) {
	h := newHost(t, 2, fast(), Config{})
	var p pickReply
	h.must(t, "/pick", object{"deadline_ms": 60000}, &p)
	var r doneReply
	h.must(t, "/done", object{"lease": p.Lease, "status": 503, "retry": true}, &r)
	if !r.Settled || r.Next == nil || r.Next.Target == p.Target || r.Next.Attempt != 2 || r.Next.DeadlineMS != 60000 {
		t.Fatalf("%+v", r)
	}
	h.refused(t, "/done", object{"lease": p.Lease}, 404, "no_such_lease")
	next := r.Next.Lease
	r = doneReply{}
	h.must(t, "/done", object{"lease": next, "error": "reset", "retry": true}, &r)
	if !r.Settled || r.Next != nil || r.Why == "" {
		t.Errorf("there are but two: %+v", r)
	}
	if v := h.health(t); v.Leases != 0 {
		t.Errorf("%+v", v)
	}
}

// TestFailures: a time-out of an attempt blames its target and goes elsewhere only if
// nothing was sent; a target that lacks the model is left once.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		done  object
		again bool
	}{
		"timed out":             {object{"timed_out": true, "error": "10 s"}, false},
		"timed out, not sent":   {object{"timed_out": true, "not_sent": true}, true},
		"not sent":              {object{"not_sent": true}, true},
		"a 404":                 {object{"status": 404}, false},
		"a 404 of the target's": {object{"status": 404, "lacking": true}, true},
	} {
		h := newHost(t, 2, fast(), Config{})
		var p pickReply
		h.must(t, "/pick", object{"prompt": object{"text": "hello"}}, &p)
		c.done["lease"], c.done["retry"] = p.Lease, true
		var r doneReply
		h.must(t, "/done", c.done, &r)
		if !r.Settled || (r.Next != nil) != c.again {
			t.Errorf("%s: %+v", name, r)
		}
		if r.Next != nil {
			h.must(t, "/done", object{"lease": r.Next.Lease, "status": 200}, new(doneReply))
		}
	}
}

// TestRetryLeft: who goes away while a retry waits leaves no lease.
func TestRetryLeft(t *testing.T) {
	h := newHost(t, 2, fast(), Config{})
	var p pickReply
	h.must(t, "/pick", object{}, &p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, _ := json.Marshal(object{"lease": p.Lease, "status": 503, "retry": true})
	h.service.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/done", bytes.NewReader(b)))
	h.idle(t)
	h.service.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/pick",
		strings.NewReader(`{}`)))
	h.idle(t)
}

func TestTargets(t *testing.T) {
	h := newHost(t, 2, fast(), Config{})
	if err := h.fleet.SetDraining(h.replicas[1].URL, true); err != nil {
		t.Fatal(err)
	}
	var p pickReply
	h.must(t, "/pick", object{"prompt": object{"text": "hello hello hello"}}, &p)
	resp, err := h.client.Get(h.URL + "/targets")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v struct {
		Targets []struct {
			ID, State string
			InFlight  int `json:"in_flight"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || len(v.Targets) != 2 {
		t.Fatal(err, v)
	}
	if a, b := v.Targets[0], v.Targets[1]; a.ID != p.Target || a.InFlight != 1 || a.State != "ready" ||
		b.State != "draining" || b.InFlight != 0 {
		t.Errorf("%+v", v)
	}
	h.must(t, "/done", object{"lease": p.Lease}, new(doneReply))
}

// TestKill kills one of four replicas under load. A request with a reply that
// had not begun must not fail; one in the midst of its reply can be saved by
// nobody.
func TestKill(t *testing.T) {
	h := newHost(t, 4, vllmtest.Config{TimeScale: 0.05, ReplyTokens: 20}, Config{})
	h.client.Transport = h.client.Transport.(*checked).next // checking would be most of the work
	const clients, each = 8, 20
	var wg sync.WaitGroup
	var sent, failed, broke atomic.Int64
	for c := range clients {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprintf("client %d says ", c), 40)
			for i := range each {
				if sent.Add(1) == clients*each/3 {
					v := h.replicas[h.busiest(t)]
					v.SetFaults(vllmtest.Faults{Refuse: true})
					v.Restart()
				}
				text += fmt.Sprint(" turn ", i)
				switch err := h.serve(chat(text, c%2 == 0)); {
				case err == nil:
				case errors.Is(err, errBegun):
					broke.Add(1)
				default:
					failed.Add(1)
					t.Log(c, i, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("sidecar: one of four killed: %d requests, %d failed that another could serve, %d broke off in the midst",
		sent.Load(), failed.Load(), broke.Load())
	if failed.Load() != 0 {
		t.Errorf("%d failed", failed.Load())
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

// TestAddedLatency logs what /pick and /done add at one client to a request that
// goes to a replica, over TCP and over a Unix socket, in turns.
func TestAddedLatency(t *testing.T) {
	h := newHost(t, 1, vllmtest.Config{Instant: true, ReplyTokens: 20}, Config{})
	path := filepath.Join(t.TempDir(), "s")
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, h.service, l) }()
	tcp, unix := &http.Transport{}, &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer func() {
		tcp.CloseIdleConnections()
		unix.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	body := chat(strings.Repeat("all work and no play ", 700), true) // 14 KB
	post := func(c http.RoundTripper, url string, body []byte) []byte {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewReader(body))
		resp, err := c.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp.Status, err)
		}
		return b
	}
	var took [3][]time.Duration
	for i := range 3 * 300 {
		start := time.Now()
		target := h.replicas[0].URL
		c := []*http.Transport{nil, tcp, unix}[i%3]
		var p pickReply
		if c != nil {
			if err := json.Unmarshal(post(c, h.URL+"/pick", []byte(`{"body":`+body+`}`)), &p); err != nil {
				t.Fatal(err)
			}
			target = p.Target
		}
		post(h.engines.Transport, target+"/v1/chat/completions", []byte(body))
		if c != nil {
			post(c, h.URL+"/done", []byte(`{"lease":"`+p.Lease+`","status":200}`))
		}
		took[i%3] = append(took[i%3], time.Since(start))
	}
	for i := range took {
		slices.Sort(took[i])
	}
	t.Logf("sidecar: p50 at one client: %v without, %v with over TCP, %v over a Unix socket, added %v and %v",
		took[0][150], took[1][150], took[2][150], took[1][150]-took[0][150], took[2][150]-took[0][150])
}
