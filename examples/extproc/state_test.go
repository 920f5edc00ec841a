package main

import (
	"strings"
	"testing"

	"github.com/warmroute/router/internal/statetest"
)

// TestStateStays: a request that names a response, a conversation, a file or a medium goes to the endpoint that has it.
func TestStateStays(t *testing.T) {
	var engines []*statetest.Engine
	var ids []string
	for _, name := range []string{"e0", "e1", "e2", "e3"} {
		e := statetest.New(t, name)
		engines, ids = append(engines, e), append(ids, strings.TrimPrefix(e.URL, "http://"))
	}
	s := serve(t, Config{}, 0, ids...)
	c := envoy(t, s.addr, ids)
	statetest.Run(t, statetest.Host{URL: "http://envoy", Client: c}, engines...)
	s.idle(t)
}
