package debugui_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/strategy/roundrobin"
)

// TestViewTrace calls every hook and finds it on the page and at the next one's.
func TestViewTrace(t *testing.T) {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var next []string
	told := func(s string) { next = append(next, s) }
	h := page.ViewTrace(loadview.Trace{
		StateChanged:  func(id string, _, to router.State) { told(id + to.String()) },
		Joined:        func(m loadview.Member) { told(m.ID + "joined") },
		Left:          func(id string, _ int) { told(id + "left") },
		Forget:        func(id string) { told(id + "forgot") },
		Lacks:         func(id, name string) { told(id + name) },
		ScrapeChanged: func(id string, err error) { told(id + "scrape") },
	})
	for _, h := range []loadview.Trace{h, page.ViewTrace(loadview.Trace{})} { // one of them without a next
		h.StateChanged("a", router.Ready, router.Tripped)
		h.StateChanged("a", router.Tripped, router.Ready)
		h.StateChanged("a", router.Ready, router.Draining)
		h.Joined(loadview.Member{ID: "b"})
		h.Left("http://x:y@c/d?e", 3)
		h.Forget("d")
		h.ScrapeChanged("e", errors.New("http://x:y@e"))
		h.ScrapeChanged("e", nil)
		h.Lacks("g", "lora")
	}
	page.StreamChanged("f", "live", "down", "connection lost")
	page.StreamChanged("f", "down", "live", "")
	page.Gap("f", 7, 8) // nothing is missing
	page.Gap("f", 7, 1)
	var v state
	get(t, page, "/state", &v)
	var got []string
	for _, e := range v.Events[:len(v.Events)-9] {
		got = append(got, e.Level+" "+e.Kind+" "+e.Target+" "+e.Text)
	}
	want := []string{
		"bad gap f gap in the events: messages are missing between 7 and 1",
		"bad gap f gap in the events: messages are missing between 7 and 8",
		"good stream f event stream was down, is live",
		"bad stream f event stream was live, is down: connection lost",
		"info lacks g does not have a model or an adapter: it is passed over for that for a minute",
		"good scrape e its metrics page is read again",
		"bad scrape e its metrics page cannot be read",
		"info forgot d its cache is lost: its prompts are forgotten",
		"info left http://c/d left the fleet with 3 in flight",
		"info joined b joined the fleet",
		"info state a was ready, is draining",
		"good state a was tripped, is ready",
		"bad state a was ready, is tripped",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("atripped aready adraining bjoined http://x:y@c/d?eleft dforgot escrape escrape glora",
		strings.Join(next, " ")); d != "" {
		t.Error(d)
	}
}

// oneIndex knows one target.
type oneIndex struct{}

func (oneIndex) Target(id string) (kvindex.TargetStats, bool) {
	return kvindex.TargetStats{Trusted: id == "a", Blocks: 12}, id == "a"
}

// TestSources has a route with everything that can be watched, and one with nothing.
func TestSources(t *testing.T) {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		t.Fatal(err)
	}
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b", Weight: 2}}); err != nil {
		t.Fatal(err)
	}
	s, err := roundrobin.New(roundrobin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(s, view, router.Options{Trace: page.Trace("bare", router.Trace{})}) // not wrapped
	l, err := r.Route(context.Background(), prompt("x"))
	if err != nil {
		t.Fatal(err)
	}
	l.Done(router.Outcome{Stage: router.Finished})
	var v struct {
		state
		CanTry, HasView, HasIndex, HasWarmed bool
		Streams                              []debugui.Stream
		Waiting, WaitingKB, Shed             int
		Splits                               *struct {
			Split, Failed, Again, Reused, Stranded, Expired, Silent int
			Skipped                                                 map[string]int
		}
		Memory *struct {
			LimitKB, UsedKB, PeakKB int64
			Accounts                []struct {
				Name                    string
				LimitKB, UsedKB, PeakKB int64
				Shed                    int
			}
		}
		Shared *struct {
			Connected, Load                    bool
			LagUS, LagP99US, PeersOf, MemoryKB int
			Peers                              []struct {
				Name           string
				HeardMS, LagUS int
				Counted        bool
			}
		}
	}
	get(t, page, "/state", &v)
	if v.Shared != nil || v.Splits != nil || v.CanTry || v.HasView || v.HasIndex || v.HasWarmed ||
		v.Totals.Finished != 1 || v.Decisions[0].Stage != "untold" {
		t.Errorf("%+v", v)
	}
	streams := []debugui.Stream{{Target: "a", State: "live", Trusted: true, Messages: 5, Gaps: 1, Replays: 2,
		Malformed: 3, Overflows: 4}}
	err = page.Watch(debugui.Route{
		Name: "full", Router: r, View: view, Index: oneIndex{}, Streams: func() []debugui.Stream { return streams },
		Warmed: func(ids []string, n []int) []int { return append(n[:0], 7, 8)[:len(ids)] },
		Queue:  aLine{},
		Share:  aShare{},
		Disagg: aSplit{},
		Memory: aBudget{},
	})
	if err != nil {
		t.Fatal(err)
	}
	v.Decisions, v.Streams = nil, nil
	get(t, page, "/state", &v)
	if !v.CanTry || !v.HasView || !v.HasIndex || !v.HasWarmed || v.Route != "full" || len(v.Targets) != 2 {
		t.Fatalf("%+v", v)
	}
	if a, b := v.Targets[0], v.Targets[1]; a.Blocks != 12 || !a.Trusted || a.Weight != 1 || a.Warmed != 7 ||
		b.Blocks != 0 || b.Trusted || b.Weight != 2 || b.Warmed != 8 {
		t.Errorf("%+v", v.Targets)
	}
	if d := cmp.Diff(streams, v.Streams); d != "" {
		t.Error(d)
	}
	if s := v.Shared; s == nil || !s.Connected || s.Load || s.LagUS != 2000 || s.LagP99US != 5000 || s.PeersOf != 1 ||
		s.MemoryKB != 2 || s.Peers[0].Name != "b" || s.Peers[0].HeardMS != 7 || !s.Peers[0].Counted {
		t.Errorf("%+v", s)
	}
	if s := v.Splits; s == nil || s.Split != 5 || s.Failed != 1 || s.Again != 3 || s.Reused != 2 || s.Stranded != 6 ||
		s.Expired != 4 || s.Silent != 8 || len(s.Skipped) != 1 || s.Skipped["short"] != 7 {
		t.Errorf("%+v", s)
	}
	if v.Targets[0].Role != "prefill" || v.Targets[1].Role != "decode" {
		t.Errorf("%+v", v.Targets)
	}
	if m := v.Memory; m == nil || m.LimitKB != 9 || m.UsedKB != 5 || m.PeakKB != 7 || len(m.Accounts) != 1 ||
		m.Accounts[0].Name != "bodies" || m.Accounts[0].LimitKB != 4 || m.Accounts[0].UsedKB != 2 ||
		m.Accounts[0].PeakKB != 3 || m.Accounts[0].Shed != 6 {
		t.Errorf("%+v", m)
	}
	if v.Waiting != 3 || v.WaitingKB != 5 || v.Shed != 6 {
		t.Errorf("%d wait with %d KB, %d were shed", v.Waiting, v.WaitingKB, v.Shed)
	}
}

type aSplit struct{}

func (aSplit) Stats() disagg.Stats {
	return disagg.Stats{
		Split: 5, PrefillFailed: 1, Reused: 2, Again: 3, Expired: 4, Stranded: 6, Silent: 8,
		Skipped: map[disagg.Skip]uint64{disagg.SkipShort: 7, disagg.SkipIdle: 0},
	}
}

func (aSplit) Place(t router.Target) disagg.Place {
	if t.ID == "a" {
		return disagg.Place{Role: disagg.Prefill}
	}
	return disagg.Place{Role: disagg.Decode}
}

type aBudget struct{}

func (aBudget) Stats() membudget.Stats {
	return membudget.Stats{Limit: 9 << 10, Used: 5 << 10, Peak: 7 << 10, Accounts: []membudget.AccountStats{
		{Name: "bodies", Limit: 4 << 10, Used: 2 << 10, Peak: 3 << 10, Shed: 6},
	}}
}

type aShare struct{}

func (aShare) State() share.State {
	return share.State{
		Bus: share.BusState{Connected: true}, LagP50: 2 * time.Millisecond, LagP99: 5 * time.Millisecond, Memory: 2 << 10,
		Peers: []share.Peer{{Name: "b", Heard: 7 * time.Millisecond, Counted: true}},
	}
}

type aLine struct{}

func (aLine) Stats() admission.Stats {
	return admission.Stats{Waiting: 3, Bytes: 5 << 10, Left: map[string]uint64{
		admission.Served: 9, admission.TooLong: 1, admission.TooMany: 2, admission.TooLarge: 3, admission.Canceled: 4}}
}
