package frameworks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kratos/kratos/v2/selector"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

func newRouter(t *testing.T, o router.Options, members ...loadview.Member) (*router.Router, *loadview.View) {
	t.Helper()
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Set(members); err != nil {
		t.Fatal(err)
	}
	return router.New(strategy, fleet, o), fleet
}

func idle(t *testing.T, fleet *loadview.View) {
	t.Helper()
	for _, s := range fleet.Snapshot() {
		if s.Target.Load.InFlight != 0 {
			t.Errorf("%s still has %d requests", s.Target.ID, s.Target.Load.InFlight)
		}
	}
}

func TestEcho(t *testing.T) {
	var broken atomic.Bool // the next attempt is refused, whichever gets it
	var asked, refused atomic.Int64
	var by atomic.Pointer[string] // who refused it
	var members []loadview.Member
	for _, name := range []string{"first", "second"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil || !strings.Contains(string(b), "hello") {
				t.Errorf("body %q, %v", b, err)
			}
			if broken.Swap(false) {
				refused.Add(1)
				by.Store(&name)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			asked.Add(1)
			if last := by.Swap(nil); last != nil && *last == name {
				t.Errorf("the retry came to the %s again", name)
			}
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}]}`)
		}))
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, loadview.Member{ID: s.URL, Ref: &middleware.ProxyTarget{Name: s.URL, URL: u}})
	}
	r, fleet := newRouter(t, router.Options{}, members...)
	b := Echo{Router: r}
	e := echo.New()
	e.Use(b.Settle, middleware.ProxyWithConfig(middleware.ProxyConfig{Balancer: b, RetryCount: 2,
		ModifyResponse: b.Response, RetryFilter: func(echo.Context, error) bool { return true }}))
	host := httptest.NewServer(e)
	t.Cleanup(host.Close)
	for i := range 20 {
		broken.Store(i == 4)
		resp, err := http.Post(host.URL+"/v1/chat/completions", "application/json", strings.NewReader(
			`{"model":"m","messages":[{"role":"user","content":"hello `+strings.Repeat("x", i)+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "hi") {
			t.Errorf("%d: %s, %v: %s", i, resp.Status, err, body)
		}
	}
	if asked.Load() != 20 || refused.Load() != 1 {
		t.Errorf("%d answered, %d refused", asked.Load(), refused.Load())
	}
	host.Close() // waits for the handlers, which settle
	idle(t, fleet)
}

func TestKratos(t *testing.T) {
	r, fleet := newRouter(t, router.Options{})
	k := &Kratos{Router: r, Fleet: fleet}
	var _ selector.Selector = k
	if _, _, err := k.Select(t.Context()); err == nil || !errors.Is(err, selector.ErrNoAvailable) {
		t.Errorf("of no nodes: %v", err)
	}
	k.Apply([]selector.Node{selector.NewNode("http", "10.0.0.1:80", nil), selector.NewNode("http", "10.0.0.2:80", nil)})
	ctx := WithRequest(t.Context(), r.Request(router.Prompt{Model: "m", Text: strings.Repeat("hello ", 500)}))
	first, done, err := k.Select(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done(ctx, selector.DoneInfo{Err: errors.New("connection reset")})
	second, done, err := k.Select(ctx)
	if err != nil || second.Address() == first.Address() {
		t.Fatalf("the retry went to %v after %v: %v", second, first, err)
	}
	done(ctx, selector.DoneInfo{})
	if _, done, err = k.Select(t.Context()); err != nil { // without a prompt
		t.Fatal(err)
	}
	done(ctx, selector.DoneInfo{})
	idle(t, fleet)
	k.Apply([]selector.Node{selector.NewNode("http", "", nil)})
	if _, _, err := k.Select(t.Context()); err == nil {
		t.Error("a node without an address is selected")
	}
}

func TestAwaitBestAddress(t *testing.T) {
	r, fleet := newRouter(t, router.Options{Wait: time.Minute})
	go func() { // the fleet scales up from zero
		if err := fleet.Set([]loadview.Member{{ID: "10.0.0.1:80"}}); err != nil {
			t.Error(err)
		}
	}()
	addr, done, err := AwaitBestAddress(t.Context(), r, router.Prompt{Text: "hello"})
	if err != nil || addr != "10.0.0.1:80" {
		t.Fatalf("%q, %v", addr, err)
	}
	if n := fleet.Snapshot()[0].Target.Load.InFlight; n != 1 {
		t.Errorf("%d in flight", n)
	}
	done()
	idle(t, fleet)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	none, _ := newRouter(t, router.Options{Wait: time.Minute})
	if _, _, err := AwaitBestAddress(ctx, none, router.Prompt{}); !errors.Is(err, context.Canceled) {
		t.Errorf("who left: %v", err)
	}
}
