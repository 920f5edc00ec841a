package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/kvindex"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	writeTable(&b, [][]string{{"a", "long head"}, {"ä longer cell", "1"}})
	want := "" +
		"| a             | long head |\n" +
		"| ------------- | --------- |\n" +
		"| ä longer cell | 1         |\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTally(t *testing.T) {
	var got tally
	if got.enough() {
		t.Error("nothing judged is enough")
	}
	x := func(predicted, reported int) *exchange {
		return &exchange{predicted: predicted, reported: reported, live: true, tokens: make([]uint32, 100)}
	}
	for range 98 {
		got.add(x(64, 64), "")
	}
	got.add(x(64, 32), causeReset)
	if got.enough() {
		t.Error("98 of 99 is enough")
	}
	got.add(x(0, 0), "")
	if !got.enough() {
		t.Error("99 of 100 is not enough")
	}
	got.add(x(32, 64), causeLate)
	unknown := x(-1, 0)
	unknown.reason = "no_tokens_text"
	got.add(unknown, "")
	down := x(64, 64)
	down.live, down.reason = false, "warm"
	got.add(down, "")
	got.first = 3
	want := []string{"p", "103", "3 + 100", "101", "99", "98.0%", "1", "1", share(98*64+32+64+64, 10300)}
	if diff := cmp.Diff(want, got.row("p")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"no_tokens_text": 1, "warm": 1}, got.reasons); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[cause]int{causeReset: 1, causeLate: 1}, got.causes); diff != "" {
		t.Error(diff)
	}
}

// The requests of a wave are prefixes of each other, with the engine's replies in
// them, and lengths that fit the engine.
func TestWave(t *testing.T) {
	w := newWave(1, 5)
	n, grown := w.left(), 0
	last := make(map[string]request) // by the first user's message
	for i := range n {
		b, err := w.body()
		if err != nil {
			t.Fatal(err)
		}
		var r request
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		if len(b) > 3*maxLength || r.MaxTokens < 1 || r.MaxTokens > 50 || !r.ReturnIDs ||
			r.Messages[len(r.Messages)-1].Role != "user" {
			t.Fatalf("%d: %s", i, b)
		}
		key := r.Messages[0].Content + r.Messages[1].Content
		if before, ok := last[key]; ok {
			grown++
			k := len(before.Messages)
			if diff := cmp.Diff(before.Messages, r.Messages[:k]); diff != "" {
				t.Fatalf("%d: %s", i, diff)
			}
			if m := r.Messages[k]; len(r.Messages) != k+2 || m.Role != "assistant" || !strings.HasPrefix(m.Content, "reply ") {
				t.Fatalf("%d: %+v follows", i, r.Messages[k:])
			}
		}
		last[key] = r
		w.done("reply " + key[:20])
	}
	if w.left() != 0 || len(w.bodies) != n || grown == 0 || len(last) != 5 {
		t.Errorf("%d left, %d of %d bodies, %d grown, %d conversations", w.left(), len(w.bodies), n, grown, len(last))
	}
}

func ids(n int) []uint32 {
	t := make([]uint32, n)
	for i := range t {
		t[i] = uint32(i + 1)
	}
	return t
}

// stored is the event of n consecutive blocks of ids from the from-th on.
func stored(from, n int) kvindex.Event {
	e := kvindex.Event{Kind: kvindex.Stored, Group: -1, BlockSize: blockSize, HasParent: from > 0, Parent: uint64(from),
		Tokens: ids((from + n) * blockSize)[from*blockSize:]}
	for i := range n {
		e.Hashes = append(e.Hashes, uint64(from+i+1))
	}
	return e
}

func removed(hashes ...uint64) kvindex.Event {
	return kvindex.Event{Kind: kvindex.Removed, Group: -1, Hashes: hashes}
}

func TestExplain(t *testing.T) {
	start := time.Now()
	at := func(ms int, e kvindex.Event) arrival {
		return arrival{at: start.Add(time.Duration(ms) * time.Millisecond), event: e}
	}
	clear := kvindex.Event{Kind: kvindex.Cleared, Group: -1}
	sent := start.Add(time.Second)
	for _, c := range []struct {
		name                string
		predicted, reported int
		log                 []arrival
		before              []*exchange
		started             time.Time
		want                cause
		detail              string
	}{
		{"a reset told late", 96, 0, []arrival{at(0, stored(0, 3)), at(1200, clear), at(1201, stored(0, 3))}, nil,
			time.Time{}, causeReset, "reported 200 ms after it was sent"},
		{"a reset told in time", 96, 0, []arrival{at(0, stored(0, 3)), at(900, clear), at(1201, stored(0, 3))}, nil,
			time.Time{}, causeGateway, "the events say 0"},
		{"stored late", 32, 96, []arrival{at(0, stored(0, 1)), at(1010, stored(1, 1)), at(1020, stored(2, 1))}, nil,
			time.Time{}, causeLate, "2, the last of them 20 ms after"},
		{"removed late", 96, 64, []arrival{at(0, stored(0, 3)), at(1010, removed(3))}, nil, time.Time{}, causeLate,
			"1, the last of them 10 ms after"},
		{"started again", 96, 0, []arrival{at(0, stored(0, 3))}, nil, start.Add(500 * time.Millisecond), causeRestart, ""},
		{"presumed", 96, 64, []arrival{at(0, stored(0, 3)), at(900, removed(3))},
			[]*exchange{{target: "other", sent: sent.Add(-time.Second), tokens: ids(100)},
				{target: "e", sent: sent.Add(-900 * time.Millisecond), tokens: ids(97)}},
			time.Time{}, causePresumed, "97 tokens, sent 900 ms before"},
		{"presumed elsewhere, and long ago", 96, 64, []arrival{at(0, stored(0, 3)), at(900, removed(3))},
			[]*exchange{{target: "e", sent: sent.Add(-3 * time.Second), tokens: ids(97)},
				{target: "other", sent: sent.Add(-time.Second), tokens: ids(100)}},
			time.Time{}, causeGateway, "the events say 64"},
		{"predicted too little", 32, 64, []arrival{at(0, stored(0, 2))}, nil, time.Time{}, causeGateway, "the events say 64"},
		{"nothing fits", 32, 64, []arrival{at(0, stored(0, 1))}, nil, time.Time{}, causeUnknown,
			"which said 32 when it was sent"},
		{"started over", 96, 0, []arrival{at(0, stored(0, 3)), {at: start.Add(100 * time.Millisecond), reset: true}}, nil,
			time.Time{}, causeGateway, "the events say 0"},
	} {
		x := &exchange{target: "e", sent: sent, tokens: ids(120), predicted: c.predicted, reported: c.reported, live: true}
		got, detail, err := explain(x, c.log, c.before, c.started)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got != c.want || detail != c.detail {
			t.Errorf("%s: %s (%s)", c.name, got, detail)
		}
	}
}

// A witness keeps what came, as it was, and starts over where the sequence does.
func TestWitness(t *testing.T) {
	w := &witness{id: "e"}
	e := stored(0, 2)
	apply := func(seq uint64) error { return w.Apply("e", seq, kvindex.Batch{Events: []kvindex.Event{e}}) }
	if err := apply(7); err != nil {
		t.Fatal(err)
	}
	e.Hashes[0], e.Tokens[0] = 99, 99 // the subscriber's memory is used again
	if err := apply(9); err != kvindex.ErrGap {
		t.Errorf("a gap: %v", err)
	}
	if err := apply(8); err != nil {
		t.Fatal(err)
	}
	if err := apply(0); err != nil {
		t.Fatal(err)
	}
	w.Reset("e")
	var got []bool
	for _, a := range w.arrivals() {
		got = append(got, a.reset)
	}
	if diff := cmp.Diff([]bool{false, false, true, false, true}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(stored(0, 2), w.arrivals()[0].event); diff != "" {
		t.Error(diff)
	}
	r, err := newReplica("e")
	if err != nil {
		t.Fatal(err)
	}
	if n := r.holds(ids(120)); n != 0 {
		t.Errorf("an empty one holds %d", n)
	}
	if err := r.apply(w.arrivals()[0]); err != nil {
		t.Fatal(err)
	}
	if n := r.holds(ids(120)); n != 64 {
		t.Errorf("it holds %d", n)
	}
}

func TestSend(t *testing.T) {
	headers := http.Header{}
	text, status := "", http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range headers {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		w.Write([]byte(text))
	}))
	defer s.Close()
	const good = `{"choices":[{"message":{"content":"x"}}],"prompt_token_ids":[1,2,3],"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}`
	for _, c := range []struct {
		name, text, reason, cached string
		status, predicted          int // -2: an error
	}{
		{"predicted", good, "warm", "32", 200, 32},
		{"by text", good, "no_tokens_text", "32", 200, -1},
		{"not trusted", good, "untrusted_text", "32", 200, -1},
		{"no numbers", good, "warm", "", 200, -1},
		{"no number", good, "warm", "many", 200, -2},
		{"nothing was cached, in an old engine's words", strings.Replace(good, `{"cached_tokens":2}`, "null", 1), "cold",
			"0", 200, 0},
		{"an error", good, "warm", "32", 503, -2},
		{"no JSON", "oh", "warm", "32", 200, -2},
		{"ids that do not fit", strings.Replace(good, "[1,2,3]", "[1,2]", 1), "warm", "32", 200, -2},
		{"no choice", strings.Replace(good, `{"message":{"content":"x"}}`, "", 1), "warm", "32", 200, -2},
	} {
		text, status = c.text, c.status
		headers = http.Header{"X-Warmroute-Target": {"t"}, "X-Warmroute-Reason": {c.reason}}
		if c.cached != "" {
			headers.Set("X-Warmroute-Cached-Tokens", c.cached)
		}
		x, err := send(context.Background(), s.URL, []byte("{}"))
		switch {
		case err != nil && c.predicted != -2:
			t.Errorf("%s: %v", c.name, err)
		case err == nil && (x.predicted != c.predicted || x.target != "t" || x.text != "x" || len(x.tokens) != 3):
			t.Errorf("%s: %+v", c.name, x)
		}
	}
}

func TestPythonVersions(t *testing.T) {
	for v, fits := range map[string]bool{"3.11.7": true, "3.14.0": true, "3.10.2": false, "3.15.1": false, "2.7.18": false,
		"4.11.0": false, "": false, "3": false} {
		if err := fitsPython(v); (err == nil) != fits {
			t.Errorf("%q: %v", v, err)
		}
	}
}

func TestPage(t *testing.T) {
	text := `{"Precise":{"Judged":7,"Mismatched":2,"Targets":{"a":{"State":"live"},"b":{"State":"resyncing"}}}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debug/warmroute" {
			w.WriteHeader(http.StatusNotFound)
		}
		w.Write([]byte(text))
	}))
	defer s.Close()
	f := &fleet{url: s.URL}
	p, err := f.page(context.Background())
	if err != nil || p.Precise.Judged != 7 || p.Precise.Mismatched != 2 || !p.live("a") || p.live("b") || p.live("c") {
		t.Errorf("%+v, %v", p, err)
	}
	text = "busy"
	if _, err := f.page(context.Background()); err == nil {
		t.Error("no page, and no error")
	}
}
