package loadview_test

import (
	"context"
	"io"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// answer sends a request with this text to one member, which ends with o.
func answer(t *testing.T, v *loadview.View, id, text string, o router.Outcome) {
	t.Helper()
	_, f, err := v.Choose(context.Background(), func(ts []router.Target) (router.Decision, error) {
		for _, target := range ts {
			if target.ID == id {
				return router.Decision{Target: target, Prompt: router.Prompt{Text: text}}, nil
			}
		}
		return router.Decision{}, router.ErrNoTarget
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Status == 200 {
		f.FirstToken()
	}
	f.Done(o)
}

func three(t *testing.T) *loadview.View {
	t.Helper()
	v, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Set([]loadview.Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLacking: a member that lacks what its neighbours have is taken out, and nobody is if all lack it.
func TestLacking(t *testing.T) {
	for _, status := range []int{302, 401, 403, 404} {
		testLacking(t, router.Outcome{Status: status, Lacking: true})
	}
}

func testLacking(t *testing.T, lacks router.Outcome) {
	t.Helper()
	good := router.Outcome{Status: 200}
	texts := []string{"one", "two", "three", "four", "five"}
	v := three(t)
	for _, text := range texts {
		answer(t, v, "a", text, lacks)
		answer(t, v, "b", text, lacks)
	}
	for _, s := range v.Snapshot() {
		if s.Target.State != router.Ready || s.Failures != 0 {
			t.Errorf("a model that does not exist: %s is %v, %d failures", s.Target.ID, s.Target.State, s.Failures)
		}
	}
	v = three(t)
	for _, text := range texts {
		answer(t, v, "a", text, lacks)
		answer(t, v, "b", text, good)
	}
	for _, s := range v.Snapshot() {
		if want := s.Target.ID == "a"; (s.Target.State == router.Cooling) != want {
			t.Errorf("b has what a lacks: %s is %v", s.Target.ID, s.Target.State)
		}
	}
	v = three(t) // the client's own mistakes
	for _, text := range texts {
		answer(t, v, "a", text, router.Outcome{Status: 400})
		answer(t, v, "b", text, good)
	}
	if s := v.Snapshot()[0]; s.Target.State != router.Ready {
		t.Errorf("after a client's mistakes: %v", s.Target.State)
	}
}

// TestBrokenOff: a reply that breaks off behind its first token speaks against the member, one that the client left
// does not.
func TestBrokenOff(t *testing.T) {
	v := three(t)
	for range 50 {
		answer(t, v, "a", "", router.Outcome{Status: 200, Err: context.Canceled})
	}
	if s := v.Snapshot()[0]; s.Target.State != router.Ready {
		t.Errorf("clients left: %v", s.Target.State)
	}
	for range 50 {
		answer(t, v, "a", "", router.Outcome{Status: 200, Err: io.ErrUnexpectedEOF})
	}
	if s := v.Snapshot()[0]; s.Target.State != router.Cooling {
		t.Errorf("replies broke off: %v", s.Target.State)
	}
}
