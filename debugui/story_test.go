package debugui

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// news returns the state of a page.
func news(t *testing.T, p *Page) (s state) {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/state", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return s
}

// TestStoryIsBounded: a story is copied, and neither long nor wide, whatever the host says.
func TestStoryIsBounded(t *testing.T) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if s := news(t, p); s.Story != nil {
		t.Errorf("%+v", s.Story)
	}
	long := strings.Repeat("long ", 1000)
	c := Chapter{Title: long, Verdict: long, Columns: make([]Column, 100), Rows: make([]Row, 100)}
	c.Rows[0] = Row{Label: long, Values: make([]string, 100)}
	c.Columns[0] = Column{Name: long, State: 9, Done: -1, Of: -1}
	p.Present(Story{About: long, Chapters: []Chapter{c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c}})
	s := news(t, p).Story
	if len(s.Chapters) != maxChapters || len(s.About) > 2*storyText {
		t.Fatal(len(s.Chapters), len(s.About))
	}
	got := s.Chapters[0]
	if len(got.Columns) != maxStory || len(got.Rows) != maxStory || len(got.Rows[0].Values) != maxStory ||
		len(got.Title) > 2*storyText || got.Columns[0].State != "over" || got.Columns[0].Done != 0 {
		t.Errorf("%+v", got.Columns[0])
	}
	p.Present(Story{})
	if s := news(t, p); s.Story != nil {
		t.Errorf("%+v", s.Story)
	}
}

// TestFirstTokens: the page has the median time to the first token, in the fleet's time, warm and cold.
func TestFirstTokens(t *testing.T) {
	p, err := New(Config{Speed: 10})
	if err != nil {
		t.Fatal(err)
	}
	h := p.Trace("r", router.Trace{})
	if s := news(t, p).First; s != (firstState{-1, -1, -1}) {
		t.Errorf("%+v", s)
	}
	see := func(r router.Reason, stage router.Stage, took time.Duration) {
		h.Timed(context.Background(), router.Timing{Decision: router.Decision{Reason: r}, Request: took,
			Outcome: router.Outcome{Stage: stage}})
	}
	for range 300 { // more than are kept
		see(router.ReasonWarm, router.FirstToken, time.Millisecond)
		see(router.ReasonWarm, router.Finished, time.Minute)
	}
	for range 3 {
		see(router.ReasonCold, router.FirstToken, 50*time.Millisecond)
		see(router.ReasonSpill, router.FirstToken, 7*time.Millisecond)
	}
	if s := news(t, p).First; s != (firstState{10, 10, 500}) {
		t.Errorf("%+v", s)
	}
	for _, speed := range []float64{-1, 2e6} {
		if _, err := New(Config{Speed: speed}); err == nil {
			t.Errorf("a Speed of %v is no error", speed)
		}
	}
}

// TestNoBooks: what a strategy without books believes is not known, which is not nothing.
func TestNoBooks(t *testing.T) {
	for strategy, want := range map[string]int{"round_robin": -1, "least_work": 0} {
		p, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Watch(Route{Name: "r", Strategy: strategy}); err != nil {
			t.Fatal(err)
		}
		p.Trace("r", router.Trace{}).Routed(context.Background(), router.RouteInfo{
			Decision: router.Decision{Target: router.Target{ID: "a"}, Length: 100},
		})
		s := news(t, p)
		if s.Share != want || s.Books != (want == 0) || s.Decisions[0].Cached != want {
			t.Errorf("%s: %d, %v, %d", strategy, s.Share, s.Books, s.Decisions[0].Cached)
		}
	}
}
