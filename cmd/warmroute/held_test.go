package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/statetest"
)

func stateful(t *testing.T) (engines []*statetest.Engine, urls []string) {
	for _, name := range []string{"e0", "e1", "e2", "e3"} {
		e := statetest.New(t, name)
		engines, urls = append(engines, e), append(urls, e.URL)
	}
	return engines, urls
}

// TestStateStays: a request that names state of one engine goes there, whatever the strategy. With several routes those
// that name no model go to the engine's route. An id that nobody knows is sent all the same.
func TestStateStays(t *testing.T) {
	for _, strategy := range []string{"round_robin", "least_work", "cache_aware", "random"} {
		t.Run(strategy, func(t *testing.T) {
			engines, urls := stateful(t)
			g := newRig(t, rigConfig{strategy: strategy}, urls...)
			statetest.Run(t, statetest.Host{URL: g.url, Client: g.http}, engines...)
			g.settled(t)
			resp, err := g.http.Get(g.url + "/v1/responses/resp_unknown")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b := readAll(t, resp.Body); resp.StatusCode != 404 || !strings.Contains(b, "does not have") {
				t.Errorf("%d %s", resp.StatusCode, b)
			}
			for i, o := range g.ended() {
				if o.Reply != "" && g.prompts[i].Text == "" {
					t.Errorf("%+v was learned behind an empty prompt", o)
				}
			}
		})
	}
	t.Run("two routes", func(t *testing.T) {
		engines, urls := stateful(t)
		g := serveFile(t, Config{}, twoStateRoutes(urls))
		statetest.Run(t, statetest.Host{URL: g.url, Client: g.http, Models: []string{"m0", "m1"}}, engines...)
		g.settled(t)
	})
}

func twoStateRoutes(urls []string) string {
	var b strings.Builder
	for i, u := range urls {
		fmt.Fprintf(&b, "[[providers]]\nname = \"p%d\"\napi_base = %q\n", i, u)
	}
	for i := range 2 {
		fmt.Fprintf(&b, "[[routes]]\nmodel = \"m%d\"\n", i)
		fmt.Fprintf(&b, "targets = [{ provider = \"p%d\" }, { provider = \"p%d\" }]\n", 2*i, 2*i+1)
	}
	return b.String()
}
