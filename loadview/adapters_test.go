package loadview_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/loadview"
)

// states returns the states that a request with this prompt is offered.
func states(t *testing.T, v *loadview.View, p router.Prompt) []router.State {
	t.Helper()
	var all []router.State
	stop := errors.New("only looking")
	_, _, err := v.ChoosePrompt(context.Background(), p, func(ts []router.Target) (router.Decision, error) {
		for _, target := range ts {
			all = append(all, target.State)
		}
		return router.Decision{}, stop
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	return all
}

// reply ends one request with the prompt at a member.
func reply(t *testing.T, v *loadview.View, id string, p router.Prompt, o router.Outcome) {
	t.Helper()
	_, f, err := v.ChoosePrompt(context.Background(), p, func([]router.Target) (router.Decision, error) {
		return router.Decision{Target: router.Target{ID: id}, Prompt: p}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Done(o)
}

// A member without an adapter is not offered to requests for that one for a minute, and to all others as ever.
func TestLacksAnAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := three(t)
		sql := router.Prompt{Model: "llama", Adapter: "sql", Text: "select"}
		chat := router.Prompt{Model: "llama", Adapter: "chat", Text: "hello"}
		ready := []router.State{router.Ready, router.Ready, router.Ready}
		for range 20 { // no number of them cools it
			reply(t, v, "a", sql, router.Outcome{Status: 404, Lacking: true})
			reply(t, v, "b", sql, router.Outcome{Status: 200})
		}
		if got := states(t, v, sql); !slices.Equal(got, []router.State{router.Unhealthy, router.Ready, router.Ready}) {
			t.Errorf("for the adapter that a lacks: %v", got)
		}
		if got := states(t, v, chat); !slices.Equal(got, ready) {
			t.Errorf("for another adapter: %v", got)
		}
		if got := v.Snapshot()[0].Lacking; !slices.Equal(got, []string{"sql"}) {
			t.Errorf("the snapshot says %v", got)
		}
		time.Sleep(59 * time.Second)
		if got := states(t, v, sql)[0]; got != router.Unhealthy {
			t.Errorf("after 59 s: %v", got)
		}
		time.Sleep(2 * time.Second)
		if got := states(t, v, sql); !slices.Equal(got, ready) {
			t.Errorf("after a minute: %v", got)
		}
		// If no member has it, all are offered: the client gets an engine's own answer.
		for _, id := range []string{"a", "b", "c"} {
			reply(t, v, id, sql, router.Outcome{Status: 404, Lacking: true})
		}
		if got := states(t, v, sql); !slices.Equal(got, ready) {
			t.Errorf("if all lack it: %v", got)
		}
		reply(t, v, "a", chat, router.Outcome{Status: 404, Lacking: true})
		if !v.Loaded("a", "chat") || v.Loaded("a", "chat") || v.Loaded("none", "chat") {
			t.Error("Loaded does not say what was lacking")
		}
		if got := states(t, v, chat); !slices.Equal(got, ready) {
			t.Errorf("after it was loaded: %v", got)
		}
	})
}

// Adapters that clients name as the model are the same: a member that serves other models is not to blame.
func TestLacksAModel(t *testing.T) {
	v := three(t)
	for i := range 20 {
		text := fmt.Sprint(i)
		reply(t, v, "a", router.Prompt{Model: "base", Text: text}, router.Outcome{Status: 200})
		reply(t, v, "a", router.Prompt{Model: "sql", Text: text}, router.Outcome{Status: 404, Lacking: true})
		reply(t, v, "b", router.Prompt{Model: "sql", Text: text}, router.Outcome{Status: 200})
	}
	if s := v.Snapshot()[0]; s.Target.State != router.Ready || s.Failures != 0 {
		t.Errorf("%v, %d failures", s.Target.State, s.Failures)
	}
	if got := states(t, v, router.Prompt{Model: "sql"}); got[0] != router.Unhealthy || got[1] != router.Ready {
		t.Errorf("%v", got)
	}
}

// Names come from clients: their number and length are bounded.
func TestLacksAreBounded(t *testing.T) {
	v := three(t)
	for i := range 500 {
		reply(t, v, "a", router.Prompt{Adapter: fmt.Sprintf("none%d", i)}, router.Outcome{Status: 404, Lacking: true})
	}
	reply(t, v, "a", router.Prompt{Adapter: fmt.Sprintf("%300d", 1)}, router.Outcome{Status: 404, Lacking: true})
	if got := v.Snapshot()[0].Lacking; len(got) != 32 || got[31] != "none499" {
		t.Errorf("%d names, %v", len(got), got)
	}
}

// Run gives the members' pages to the model, and a member that left is forgotten.
func TestAdapterPages(t *testing.T) {
	page := `vllm:num_requests_running{engine="0"} 1
vllm:num_requests_waiting{engine="0"} 0
vllm:lora_requests_info{max_lora="3",running_lora_adapters="sql",waiting_lora_adapters=""} 1.7e9
`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(page))
	}))
	defer srv.Close()
	slots, err := adapters.New(adapters.Config{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := loadview.New(loadview.Config{Adapters: slots, Scrape: loadview.Scrape{Interval: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Set([]loadview.Member{{ID: "a", Metrics: srv.URL}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = v.Run(ctx) }()
	for deadline := time.Now().Add(2 * time.Minute); v.Snapshot()[0].Adapters == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no page came")
		}
	}
	st := v.Snapshot()[0].Adapters
	if st.Slots != 3 || !st.Reported || len(st.Adapters) != 1 || st.Adapters[0].Name != "sql" || !st.Adapters[0].Loaded {
		t.Errorf("%+v", st)
	}
	cancel()
	if err := v.Set(nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := slots.State("a"); ok {
		t.Error("a member that left is remembered")
	}
}

// Trace.Lacks reports a lack once, so that the caller may load the adapter there.
func TestTraceLacks(t *testing.T) {
	var got []string
	v, err := loadview.New(loadview.Config{Trace: loadview.Trace{Lacks: func(id, name string) {
		got = append(got, id+" "+name)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Set([]loadview.Member{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	lacks := router.Outcome{Status: 404, Lacking: true}
	reply(t, v, "a", router.Prompt{Model: "m", Adapter: "sql"}, lacks)
	reply(t, v, "a", router.Prompt{Model: "m", Adapter: "sql"}, lacks)
	reply(t, v, "b", router.Prompt{Model: "other"}, lacks)
	reply(t, v, "b", router.Prompt{Model: "m", Adapter: "sql"}, router.Outcome{Status: 403, Lacking: true})
	v.Loaded("a", "sql")
	reply(t, v, "a", router.Prompt{Model: "m", Adapter: "sql"}, lacks)
	if want := []string{"a sql", "b other", "a sql"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
