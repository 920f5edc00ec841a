package debugui_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
)

// TestBounds has more of everything than is kept.
func TestBounds(t *testing.T) {
	var ids []string
	for i := range 300 {
		ids = append(ids, "t"+strconv.Itoa(i))
	}
	s := start(t, debugui.Config{Decisions: 5, Events: 5, Targets: 10}, router.Trace{}, ids...)
	s.state(t, "")
	for i := range 300 {
		s.route(t, "prompt "+strconv.Itoa(i)) // none of them ends
	}
	v := s.state(t, "")
	if len(v.Decisions) != 5 || len(v.Events) != 5 || len(v.Targets) != 100 || v.Matching != 300 || v.Totals.Picks != 300 {
		t.Errorf("%d decisions, %d events, %d targets of %d", len(v.Decisions), len(v.Events), len(v.Targets), v.Matching)
	}
	few := start(t, debugui.Config{Targets: 10}, router.Trace{}, ids[:60]...)
	for i := range 60 {
		few.route(t, "prompt "+strconv.Itoa(i))
	}
	with := 0
	for _, x := range few.state(t, "").Targets {
		if x.Picks > 0 {
			with++
		}
	}
	if with != 10 {
		t.Errorf("%d targets are known", with)
	}
	for i := range 200 {
		s.page.Trace("route "+strconv.Itoa(i), router.Trace{})
	}
	if v := s.state(t, "route=other"); len(v.Routes) != 101 || v.Route != "other" {
		t.Errorf("%d routes, %q", len(v.Routes), v.Route)
	}
	if err := s.page.Watch(debugui.Route{Name: "one more"}); err == nil {
		t.Error("Watch of a route beyond the bound is no error")
	}
}

// TestAtOnce has everything at once, for the race detector.
func TestAtOnce(t *testing.T) {
	s := start(t, debugui.Config{ShowPrompts: true, Decisions: 20}, router.Trace{}, "a", "b", "c")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				l := s.route(t, long[:100+i])
				l.FirstToken()
				l.Done(router.Outcome{Stage: router.Finished, PromptTokens: 30, CachedTokens: 16})
				s.page.Gap("a", uint64(i), uint64(i)+2)
				if i%20 == g {
					v := s.state(t, "")
					var d detail
					w := httptest.NewRecorder()
					r := httptest.NewRequest(http.MethodGet, "/x/decision?route=llama&seq="+strconv.FormatUint(v.Decisions[0].Seq,
						10), nil)
					r.Host = "localhost"
					s.page.ServeHTTP(w, r) // it may be gone by now
					_ = json.Unmarshal(w.Body.Bytes(), &d)
				}
			}
		})
	}
	wg.Wait()
	if v := s.state(t, ""); v.Totals.Finished != 800 || v.Totals.InFlight != 0 ||
		v.Events[0].Text != "gap in the events: 1 message is missing between 199 and 201" {
		t.Errorf("%+v", v.Totals)
	}
}
