package config

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
)

func queueFile(t *testing.T, lines string) *file.File {
	t.Helper()
	f, err := Parse([]byte(lines+`
[[providers]]
name = "p"
api_base = "http://127.0.0.1:9"
[[routes]]
model = "a"
targets = [{ provider = "p" }]
[[routes]]
model = "b"
targets = [{ provider = "p" }]
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestQueue: requests of two routes wait for the places of the target that they share, a reload with more places lets
// them go, and one without a line leaves none behind.
func TestQueue(t *testing.T) {
	entered := make(chan admission.Class, 8)
	g, err := Build(queueFile(t, "[queue]\nenabled = true\nrequests = 1\n"), Options{
		Class: func(_ context.Context, p router.Prompt) admission.Class { return admission.Class{Tenant: p.Session} },
		QueueTrace: admission.Trace{
			Entered: func(_ context.Context, _ router.Prompt, c admission.Class) { entered <- c },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	route := func(model, tenant string) (*router.Lease, error) {
		m, ok := g.Route(model)
		if !ok {
			t.Errorf("no route %s", model)
		}
		return m.Router.Route(t.Context(), router.Prompt{Model: model, Text: "hello", Session: tenant})
	}
	type routed struct {
		lease *router.Lease
		err   error
	}
	waits := func(model, tenant string) chan routed {
		c := make(chan routed, 1)
		go func() {
			l, err := route(model, tenant)
			c <- routed{l, err}
		}()
		if class := <-entered; class.Tenant != tenant {
			t.Errorf("tenant %q waits, want %q", class.Tenant, tenant)
		}
		return c
	}
	first, err := route("a", "t0")
	if err != nil {
		t.Fatal(err)
	}
	second := waits("b", "t1")
	first.Done(router.Outcome{Status: 200}) // by the other route
	r := <-second
	if r.err != nil {
		t.Fatal(r.err)
	}
	third := waits("a", "t2")
	if err := g.Reload(queueFile(t, "[queue]\nenabled = true\nrequests = 2\n")); err != nil {
		t.Fatal(err)
	}
	r3 := <-third
	if r3.err != nil {
		t.Fatal(r3.err)
	}
	fourth := waits("b", "t3")
	if err := g.Reload(queueFile(t, "")); err != nil {
		t.Fatal(err)
	}
	if g.Queue() != nil {
		t.Error("there is a line still")
	}
	free, err := route("a", "t4") // does not wait
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*router.Lease{free, r.lease, r3.lease} {
		l.Done(router.Outcome{Status: 200})
	}
	r4 := <-fourth
	if r4.err != nil {
		t.Fatal(r4.err)
	}
	r4.lease.Done(router.Outcome{Status: 200})
}

// TestQueueSheds: the bound of the file holds, and the error says so.
func TestQueueSheds(t *testing.T) {
	g, err := Build(queueFile(t,
		"[queue]\nenabled = true\nrequests = 1\nmax_waiting = 1\nmax_wait_secs = 0.05\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := g.Route("a")
	l, err := m.Router.Route(t.Context(), router.Prompt{Model: "a", Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Done(router.Outcome{Status: 200})
	for i := range 2 {
		_, err := m.Router.Route(t.Context(), router.Prompt{Model: "a", Text: fmt.Sprint(i)})
		var none *router.NoTargetError
		if !errors.As(err, &none) || none.Status() != 429 || none.Shed != admission.TooLong {
			t.Errorf("%v", err)
		}
	}
}
