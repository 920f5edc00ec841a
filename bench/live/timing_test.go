package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/config/file"
)

func TestParseLegs(t *testing.T) {
	got, err := parseLegs("time,exact")
	if diff := cmp.Diff(map[string]bool{legTime: true, legExact: true}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, bad := range []string{"", "exact,", "Time", "all"} {
		if _, err := parseLegs(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestSummarize(t *testing.T) {
	var all []firstToken
	for i := range 200 {
		all = append(all, firstToken{after: time.Duration(200-i) * time.Millisecond, cached: 3, tokens: 4})
	}
	want := summary{requests: 200, cached: 600, tokens: 800, most: 200, mean: 100500 * time.Microsecond,
		p99: 198 * time.Millisecond}
	if got := summarize(all); got != want {
		t.Errorf("%+v", got)
	}
	all[0].target = "other"
	if got := summarize(all); got.most != 199 {
		t.Errorf("%d at one engine", got.most)
	}
	if got := summarize(all[:1]); got.p99 != 200*time.Millisecond || got.mean != got.p99 {
		t.Errorf("of one: %+v", got)
	}
	if got := summarize(nil); got != (summary{}) {
		t.Errorf("of none: %+v", got)
	}
}

func TestTimedRows(t *testing.T) {
	of := func(a, b time.Duration) *timing {
		first := func(d time.Duration) []firstToken { return []firstToken{{after: d, cached: 1, tokens: 2}} }
		return &timing{passes: [timedPasses][]firstToken{first(a), first(b), first(a), first(b)}}
	}
	got := timedRows(map[string]*timing{leastWork: of(50*time.Millisecond, 10*time.Millisecond),
		roundRobin: of(100*time.Millisecond, 50*time.Millisecond)})
	want := [][]string{
		{leastWork, "4", "100.0%, 100.0%, 100.0%, 100.0%", "50.0%", "30ms", "50ms", "0.40", "0.50",
			"0.50, 0.20, 0.50, 0.20"},
		{roundRobin, "4", "100.0%, 100.0%, 100.0%, 100.0%", "50.0%", "75ms", "100ms", "1.00", "1.00",
			"1.00, 1.00, 1.00, 1.00"},
	}
	if diff := cmp.Diff(want, got[1:]); diff != "" {
		t.Error(diff)
	}
	if got := timedRows(nil); got != nil {
		t.Errorf("%v", got)
	}
}

// A leg sends a conversation's turns one after the other, and of all no more than
// its clients at a time.
func TestLeg(t *testing.T) {
	var mu sync.Mutex
	done := make(map[string]bool) // prompts that were answered
	active, sent := 0, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q timedRequest
		err := json.NewDecoder(r.Body).Decode(&q)
		if err != nil || !q.Stream || !q.Options.Usage || q.MaxTokens != timedReply {
			t.Errorf("%+v, %v", q, err)
		}
		key := func(n int) string { return fmt.Sprint(q.Messages[:n]) }
		n := len(q.Messages)
		mu.Lock()
		active++
		sent++
		if active > timedClients {
			t.Errorf("%d at a time", active)
		}
		if n > 2 && !done[key(n-2)] {
			t.Errorf("a turn before its predecessor: %d messages", n)
		}
		mu.Unlock()
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n")
		w.(http.Flusher).Flush()
		mu.Lock()
		done[key(n)] = true
		active--
		mu.Unlock()
		fmt.Fprint(w, "data: {\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	w := load(1, 6)
	got, err := leg(context.Background(), s.URL, w)
	if err != nil || len(got) != len(w.Requests) || sent != len(got) {
		t.Fatalf("%d outcomes of %d requests, %v", len(got), len(w.Requests), err)
	}
	for i, f := range got {
		if f.after <= 0 || f.cached != 4 || f.tokens != 9 {
			t.Errorf("%d: %+v", i, f)
		}
	}
}

func TestStream(t *testing.T) {
	text, status := "", http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}))
	defer s.Close()
	const usage = "data: {\"usage\":{\"prompt_tokens\":9}}\n\n"
	for _, c := range []struct {
		name, text string
		status     int
		good       bool
	}{
		{"whole", ": a comment\n\n" + usage + "data: [DONE]\n\n", 200, true},
		{"no end", usage, 200, false},
		{"no usage", "data: {}\n\ndata: [DONE]\n\n", 200, false},
		{"no JSON", "data: oh\n\n" + usage + "data: [DONE]\n\n", 200, false},
		{"an error", usage + "data: [DONE]\n\n", 503, false},
	} {
		text, status = c.text, c.status
		if _, err := stream(context.Background(), s.URL, nil); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Only the first misses by one block of an engine with EAGLE or MTP are learned from.
func TestRecomputed(t *testing.T) {
	x := &exchange{target: "a", phase: "p", predicted: 96, reported: 64}
	s := &study{fleet: &fleet{speculation: eagle}}
	for i := range learning {
		if !s.recomputed(x, causeUnknown) {
			t.Errorf("the miss %d is not", i+1)
		}
		s.misses = append(s.misses, miss{x: x, cause: causeLearned})
	}
	if s.recomputed(x, causeUnknown) {
		t.Error("one more is")
	}
	other := *x
	other.target = "b"
	if !s.recomputed(&other, causeUnknown) {
		t.Error("the first of another engine is not")
	}
	if s.recomputed(&other, causeLate) {
		t.Error("one that was late is")
	}
	other.reported = 32
	if s.recomputed(&other, causeUnknown) {
		t.Error("two blocks are")
	}
	for _, config := range []string{"", ngram, "?"} {
		if (&study{fleet: &fleet{speculation: config}}).recomputed(x, causeUnknown) {
			t.Errorf("%q does", config)
		}
	}
}

// The gateway's own checks accept the file.
func TestEventsFile(t *testing.T) {
	f, err := newFleet(nil, "", 1, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := file.Parse("x.toml", f.eventsFile(), file.Options{KVEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Providers) != engines || len(got.Routes) != 1 || got.Routes[0].Strategy != leastWork {
		t.Errorf("%+v", got)
	}
}

func TestDrafts(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "# HELP x\nvllm:spec_decode_num_draft_tokens_total{engine=\"0\",model_name=\"tiny\"} 30.0\n"+
			"vllm:spec_decode_num_accepted_tokens_total{engine=\"0\",model_name=\"tiny\"} 7.0\n"+
			"vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\"} 5.0\n")
	}))
	defer s.Close()
	f := &fleet{}
	for i := range f.engines {
		f.engines[i] = &engine{http: strings.TrimPrefix(s.URL, "http://")}
	}
	if got, err := f.drafts(context.Background()); err != nil || got != (drafts{60, 14}) {
		t.Errorf("%+v, %v", got, err)
	}
}
