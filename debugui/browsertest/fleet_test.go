//go:build unix

package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/trie"
	"github.com/warmroute/router/vllmtest"
)

const model = "llama"

// fleet is a few replicas behind a router with a page.
type fleet struct {
	t        *testing.T
	replicas []*vllmtest.Server
	router   *router.Router
	page     *debugui.Page
	url      string // of the page
	index    *kvindex.Index
}

func startFleet(t *testing.T, n int, cfg debugui.Config) *fleet {
	t.Helper()
	f := &fleet{t: t}
	var err error
	if f.page, err = debugui.New(cfg); err != nil {
		t.Fatal(err)
	}
	if f.index, err = kvindex.New(kvindex.Config{}); err != nil {
		t.Fatal(err)
	}
	recorded, err := trie.New(trie.Config{})
	if err != nil {
		t.Fatal(err)
	}
	strategy, err := cacheaware.New(cacheaware.Config{Trie: recorded})
	if err != nil {
		t.Fatal(err)
	}
	view, err := loadview.New(loadview.Config{Trace: f.page.ViewTrace(loadview.Trace{})})
	if err != nil {
		t.Fatal(err)
	}
	f.router = router.New(f.page.Strategy(strategy), view, router.Options{Trace: f.page.Trace(model, router.Trace{})})

	var members []loadview.Member
	var subs []*zmqsub.Subscriber
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	for range n {
		s, err := vllmtest.New(vllmtest.Config{Model: model, TimeScale: 0.2, ReplyTokens: 40,
			Events: &vllmtest.Events{NoReplay: true}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		f.replicas = append(f.replicas, s)
		members = append(members, loadview.Member{ID: s.URL, Weight: 1})
		sub, err := zmqsub.New(zmqsub.Config{
			Endpoint: s.Events().Endpoint(), Targets: []zmqsub.Target{{ID: s.URL}}, Index: f.index,
			Trace: zmqsub.Trace{
				Gap: f.page.Gap,
				Transition: func(id string, from, to zmqsub.State, why string) {
					f.page.StreamChanged(id, from.String(), to.String(), why)
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
		wg.Go(func() { _ = sub.Run(ctx) })
	}
	if err := view.Set(members); err != nil {
		t.Fatal(err)
	}
	streams := func() []debugui.Stream {
		out := make([]debugui.Stream, n)
		for i, s := range subs {
			id := members[i].ID
			at, _ := f.index.Target(id)
			c := s.Stats()
			out[i] = debugui.Stream{
				Target: id, State: s.State(id).String(), Trusted: at.Trusted,
				Messages: c.Messages, Gaps: c.Gaps, Replays: c.Replays, Malformed: c.Malformed, Overflows: c.Overflows,
			}
		}
		return out
	}
	if err := f.page.Watch(debugui.Route{
		Name: model, Strategy: cacheaware.Name, Router: f.router, View: view, Index: f.index, Streams: streams,
		Warmed: recorded.Warmed,
	}); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/router/", f.page)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	f.url = srv.URL + "/debug/router/"
	return f
}

type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func body(turns ...turn) []byte {
	b, _ := json.Marshal(map[string]any{"model": model, "messages": turns, "max_tokens": 40})
	return b
}

// ask sends a request as a gateway would, and returns the answer.
func (f *fleet) ask(b []byte) (string, error) {
	p, err := prompt.FromChat(b)
	if err != nil {
		return "", err
	}
	var answer string
	err = f.router.Do(context.Background(), p, func(ctx context.Context, l *router.Lease) (o router.Outcome, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Decision().Target.ID+"/v1/chat/completions",
			bytes.NewReader(b))
		if err != nil {
			return o, err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return o, err
		}
		defer resp.Body.Close()
		o.Status = resp.StatusCode
		raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil || o.Status != http.StatusOK {
			return o, err
		}
		var r struct {
			Choices []struct{ Message turn }
			Usage   struct {
				Prompt  int `json:"prompt_tokens"`
				Output  int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(raw, &r); err != nil || len(r.Choices) == 0 {
			return o, fmt.Errorf("answer: %w", err)
		}
		answer = r.Choices[0].Message.Content
		o.PromptTokens, o.CachedTokens, o.OutputTokens = r.Usage.Prompt, r.Usage.Details.Cached, r.Usage.Output
		return o, nil
	})
	return answer, err
}

// text is n bytes that differ for different seeds.
func text(seed string, n int) string {
	return strings.Repeat("The "+seed+" of the small railway says when the trains leave. ", n/50+1)[:n]
}

// chat has n turns about a subject.
func (f *fleet) chat(subject string, bytes, n int) error {
	turns := []turn{{"system", text("office", 2000)}, {"user", text(subject, bytes)}}
	for i := range n {
		answer, err := f.ask(body(turns...))
		if err != nil {
			return err
		}
		turns = append(turns, turn{"assistant", answer}, turn{"user", fmt.Sprintf("And then? (%d)", i)})
	}
	return nil
}

// chats has several at once, and waits for them.
func (f *fleet) chats(users, turns int, prefix string) {
	f.t.Helper()
	errs := make(chan error, users)
	for i := range users {
		go func() { errs <- f.chat(fmt.Sprintf("%s %d", prefix, i), 1000<<(i%5), turns) }()
	}
	for range users {
		if err := <-errs; err != nil {
			f.t.Error(err)
		}
	}
}

// burst sends the same prompt many times at once, so that its warm target has too
// much to do.
func (f *fleet) burst(subject string, n int) {
	f.t.Helper()
	b := body(turn{"user", text(subject, 8000)})
	if _, err := f.ask(b); err != nil {
		f.t.Error(err)
	}
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := f.ask(b)
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			f.t.Error(err)
		}
	}
}

// direct sends a request past the router, which makes the replica publish new blocks.
func (f *fleet) direct(s *vllmtest.Server, subject string) {
	f.t.Helper()
	resp, err := s.Client().Post(s.URL+"/v1/chat/completions", "application/json",
		bytes.NewReader(body(turn{"user", text(subject, 800)})))
	if err != nil {
		f.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.t.Fatal(resp.Status)
	}
}

// subscribed waits until the event streams are connected.
func (f *fleet) subscribed() {
	f.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for slices.ContainsFunc(f.replicas, func(s *vllmtest.Server) bool { return s.Events().Subscribers() == 0 }) {
		if time.Now().After(deadline) {
			f.t.Fatal("no subscription")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
