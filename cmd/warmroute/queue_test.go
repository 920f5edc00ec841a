package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// one is an engine that answers when it is let, in the order in which requests came.
type one struct {
	url  string
	mu   sync.Mutex
	came []string
	let  chan bool
}

func newOne(t *testing.T) *one {
	o := &one{let: make(chan bool)}
	o.url = upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		o.mu.Lock()
		o.came = append(o.came, r.Header.Get("X-Name"))
		o.mu.Unlock()
		select {
		case <-o.let:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`)
	})
	return o
}

func (o *one) got() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.came)
}

// waits waits until n requests wait in the line.
func (g *rig) waits(t *testing.T, n int) {
	t.Helper()
	q := g.service.gateway.Queue()
	for end := time.Now().Add(30 * time.Second); q.Stats().Waiting != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests wait, want %d", q.Stats().Waiting, n)
		}
	}
}

func (g *rig) queued(ctx context.Context, name string, header ...string) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"I am %s"}]}`, name)
	req, err := http.NewRequestWithContext(ctx, "POST", g.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Name", name)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return g.http.Do(req)
}

// TestQueue: requests wait for the one place, by priority and in fair shares of tenants. One that is left,
// and one too many, never come to the engine.
func TestQueue(t *testing.T) {
	o := newOne(t)
	f := rigConfig{}.flags(t, []string{o.url})
	f.queue = queueFlags{enabled: true, requests: 1, maxWaiting: 6, maxWait: time.Minute,
		tenant: "X-Tenant", priority: "X-Priority"}
	// These prompts are so short that a usual quantum pays for several.
	g := serveFile(t, Config{Log: discard}, strings.Replace(f.file(), "[queue]", "[queue]\nquantum = 1", 1))
	var clients sync.WaitGroup
	send := func(name string, header ...string) {
		clients.Go(func() {
			resp, err := g.queued(t.Context(), name, header...)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s: %s %s", name, resp.Status, readAll(t, resp.Body))
			}
		})
	}
	send("first", "X-Tenant", "a")
	for len(o.got()) == 0 {
		time.Sleep(time.Millisecond)
	}
	// Each tenant's first request comes before the others of a, and the urgent one before all.
	for i, r := range [][]string{{"a1", "a"}, {"a2", "a"}, {"a3", "a"}, {"b1", "b"}, {"u", "c", "7"}} {
		h := []string{"X-Tenant", r[1]}
		if len(r) > 2 {
			h = append(h, "X-Priority", r[2])
		}
		send(r[0], h...)
		g.waits(t, i+1)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := g.queued(ctx, "left", "X-Tenant", "d")
		left <- err
	}()
	g.waits(t, 6)
	leave()
	if <-left == nil {
		t.Error("the request that was left is answered")
	}
	g.waits(t, 5)
	send("b2", "X-Tenant", "b")
	g.waits(t, 6)

	resp, err := g.queued(t.Context(), "many", "X-Tenant", "a") // of the tenant with the most
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	if resp, err = g.queued(t.Context(), "bad", "X-Priority", "high"); err != nil {
		t.Fatal(err)
	}
	if b := readAll(t, resp.Body); resp.StatusCode != 400 || !strings.Contains(b, "X-Priority") {
		t.Errorf("a bad priority: %s %s", resp.Status, b)
	}
	resp.Body.Close()

	// The bodies of those that wait are in memory, and are counted.
	if resp, err = g.http.Get(g.url + metricsPath); err != nil {
		t.Fatal(err)
	}
	page := readAll(t, resp.Body)
	resp.Body.Close()
	for _, name := range []string{`warmroute_queue_bytes{queue="default"}`, "warmroute_gateway_body_bytes"} {
		if strings.Contains(page, name+" 0\n") || !strings.Contains(page, name+" ") {
			t.Errorf("%s is 0 while requests wait", name)
		}
	}
	for range 7 {
		o.let <- true
	}
	clients.Wait()
	g.settled(t)
	got := o.got()
	if want := []string{"first", "u"}; len(got) != 7 || !slices.Equal(got[:2], want) {
		t.Fatalf("%v, want %v first", got, want)
	}
	if a3 := slices.Index(got, "a3"); slices.Index(got, "b1") > a3 || slices.Index(got, "a1") > a3 {
		t.Errorf("the shares are not fair: %v", got)
	}

	if resp, err = g.http.Get(g.url + metricsPath); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page = readAll(t, resp.Body)
	for _, line := range []string{
		`warmroute_queue_waiting{queue="default"} 0`, `warmroute_queue_bytes{queue="default"} 0`,
		`warmroute_queue_requests_total{cause="served",priority="0",queue="default"} 5`,
		`warmroute_queue_requests_total{cause="served",priority="7",queue="default"} 1`,
		`warmroute_queue_requests_total{cause="canceled",priority="0",queue="default"} 1`,
		`warmroute_queue_requests_total{cause="too_many",priority="0",queue="default"} 1`,
		`warmroute_queue_model_requests_total{cause="served",model="m",queue="default"} 6`,
		`warmroute_queue_wait_seconds_count{priority="0",queue="default"} 5`, `warmroute_queue_wait_seconds_bucket{priority="7",queue="default",le="+Inf"} 1`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("no %s in\n%s", line, page)
		}
	}
}

// TestQueueKeepsOthersServed: requests of two models share the places of engines that refuse more, and those of one
// are many times as many as fit. With the line none of the other model fails. Without it, most do: that is logged.
func TestQueueKeepsOthersServed(t *testing.T) {
	for _, line := range []bool{true, false} {
		failed, of := crowded(t, line)
		t.Logf("line %v: %d of %d requests of the other model failed", line, failed, of)
		if line && failed > 0 {
			t.Errorf("%d of %d requests of the other model failed", failed, of)
		}
	}
}

// crowded returns how many requests of a model failed while another one's wait for the places of two engines.
func crowded(t *testing.T, line bool) (failed, of int) {
	const places = 4
	var urls []string
	for range 2 {
		busy := make(chan bool, places)
		urls = append(urls, upstream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case busy <- true:
				defer func() { <-busy }()
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			time.Sleep(10 * time.Millisecond)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`)
		}))
	}
	f := rigConfig{options: router.Options{Backoff: -1}}.flags(t, urls)
	f.queue = queueFlags{enabled: line, requests: places, maxWaiting: 100, maxWait: time.Minute}
	if !line {
		f.queue = queueFlags{}
	}
	g := serveFile(t, Config{Log: discard}, f.file())
	post := func(model, content string) bool {
		resp := g.post(t, "/v1/chat/completions", fmt.Sprintf(
			`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, content))
		defer resp.Body.Close()
		return resp.StatusCode == 200
	}
	done := make(chan bool)
	var clients sync.WaitGroup
	for i := range 32 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
					post("busy", fmt.Sprint(n, " of ", i))
				}
			}
		})
	}
	for of = range 50 {
		if !post("other", fmt.Sprint(of)) {
			failed++
		}
	}
	close(done)
	clients.Wait()
	g.settled(t)
	return failed, of + 1
}
