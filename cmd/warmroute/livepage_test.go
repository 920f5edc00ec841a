package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/roundrobin"
	"github.com/warmroute/router/vllmtest"
)

// shownState is what the tests read of the live page's news.
type shownState struct {
	Routes   []string
	Route    string
	Strategy string
	Totals   struct{ Picks, Finished int }
	Targets  []struct {
		ID    string
		Picks int
	}
	Decisions []struct {
		Target, Reason string
		Of             int
	}
	Books bool
	Story struct {
		Chapters []struct {
			Columns []struct{ State string }
			Verdict string
		}
	}
}

func readState(t *testing.T, url, query string) (s shownState) {
	t.Helper()
	resp, err := http.Get(url + "state?" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLiveDemo looks at the page of a short demo.
func TestLiveDemo(t *testing.T) {
	leakCheck(t)
	d := shortDemo()
	var err error
	if d.live, err = debugui.New(debugui.Config{}); err != nil {
		t.Fatal(err)
	}
	url, stop, err := (&livePage{Page: d.live}).serve("127.0.0.1:0", discard)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := d.run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	requests := len(d.workload(d.chat.Conversations).Requests)
	s := readState(t, url, "")
	if len(s.Routes) != 5 || s.Route != "3 gateways sharing" || s.Strategy != leastwork.Name || !s.Books ||
		len(s.Targets) != d.replicas || s.Targets[0].ID != "replica-1" || len(s.Story.Chapters) != 3 {
		t.Errorf("%+v", s)
	}
	for _, c := range s.Story.Chapters {
		if c.Verdict == "" || c.Columns[len(c.Columns)-1].State != "over" {
			t.Errorf("%+v", c)
		}
	}
	if s := readState(t, url, "route="+leastwork.Name); s.Totals.Finished != requests {
		t.Errorf("%+v", s)
	}
	s = readState(t, url, "route="+roundrobin.Name)
	if s.Route != roundrobin.Name || s.Totals.Finished != requests || s.Books {
		t.Errorf("%+v", s)
	}
}

// TestLivePage runs the gateway with -debug, sends
// a request and tries another.
func TestLivePage(t *testing.T) {
	leakCheck(t)
	var args []string
	for range 2 {
		replica := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.01, ReplyTokens: 4})
		defer replica.Close()
		args = append(args, "-target", replica.URL)
	}
	var logs lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append(args, "-listen", "127.0.0.1:0", "-debug", "127.0.0.1:0", "-drain-delay", "0s"), io.Discard,
			&logs)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	find := func(pattern string) string {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if m := regexp.MustCompile(pattern).FindStringSubmatch(logs.String()); m != nil {
				return m[1]
			}
			if time.Now().After(deadline) {
				t.Fatalf("no %s in\n%s", pattern, logs.String())
			}
		}
	}
	page := find(`msg="live page" url=(\S+)`)
	gateway := "http://" + find(`msg=listening address=(\S+)`)
	readState(t, page, "")
	question := strings.Repeat("When does the first train leave? ", 40)
	body, err := json.Marshal(map[string]any{"model": "llama",
		"messages": []map[string]string{{"role": "user", "content": question}}})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(gateway+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	s := readState(t, page, "")
	if s.Route != "*" || s.Totals.Picks != 1 || len(s.Decisions) != 1 || s.Decisions[0].Of != 2 || len(s.Targets) != 2 {
		t.Fatalf("%+v", s)
	}
	try, err := json.Marshal(map[string]string{"route": "*", "model": "llama", "body": question})
	if err != nil {
		t.Fatal(err)
	}
	resp, err = http.Post(page+"explain", "application/json", bytes.NewReader(try))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var ranked struct {
		Candidates []struct {
			Target, Reason string
			Cached, Length int
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&ranked); err != nil {
		t.Fatal(err)
	}
	if c := ranked.Candidates; len(c) != 2 || c[0].Target != s.Decisions[0].Target || c[0].Reason != "warm" ||
		c[0].Cached != c[0].Length {
		t.Errorf("%+v", ranked)
	}
}

// TestLivePageOff holds that a gateway without -debug has no page.
func TestLivePageOff(t *testing.T) {
	if s := must(newService(discard)); s.live != nil || s.options().Trace != nil {
		t.Error("a page that nobody asked for")
	}
	g := newRig(t, rigConfig{}, "http://127.0.0.1:1")
	resp, err := g.http.Get(g.url + "/state")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.Header.Get("Content-Security-Policy") != "" {
		t.Error("the gateway serves the page on its own address")
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
