package vllmtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/vllmtest"
)

// ask sends one short chat and returns the status, 0 if no reply came.
func ask(replica *vllmtest.Server) int {
	res, err := replica.Client().Post(replica.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"messages":[{"role":"user","content":"Is there a train?"}],"max_tokens":2}`))
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// A test chooses the faults: here one request is refused, then the
// replica is gone, then it is back with an empty cache.
func ExampleServer_SetFaults() {
	replica, err := vllmtest.New(vllmtest.Config{TimeScale: 0.001})
	if err != nil {
		panic(err)
	}
	defer replica.Close()
	set := func(f vllmtest.Faults) {
		if err := replica.SetFaults(f); err != nil {
			panic(err)
		}
	}
	set(vllmtest.Faults{Next: 1, Status: http.StatusServiceUnavailable, RetryAfter: time.Second})
	fmt.Println(ask(replica), ask(replica))
	set(vllmtest.Faults{Refuse: true})
	fmt.Println(ask(replica))
	set(vllmtest.Faults{})
	if err := replica.Restart(); err != nil {
		panic(err)
	}
	fmt.Println(ask(replica))
	s := replica.Stats()
	fmt.Println(s.Finished, "finished,", s.Faulted, "faulted,", s.Restarts, "restart")
	// Output:
	// 503 200
	// 0
	// 200
	// 2 finished, 1 faulted, 1 restart
}

// A publisher alone, for tests of readers of KV events.
func ExampleNewPublisher() {
	p, err := vllmtest.NewPublisher(vllmtest.Events{Topic: "kv-events"})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	fmt.Println(strings.HasPrefix(p.Endpoint(), "tcp://127.0.0.1:"), p.ReplayEndpoint() != "")
	empty := []byte{0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90} // [time, []]
	if _, err := kvindex.Decode(empty); err != nil {
		panic(err)
	}
	fmt.Println(p.Publish(empty), p.Publish(empty), p.Next())
	p.Restart()
	fmt.Println(p.Next())
	// Output:
	// true true
	// 0 1 2
	// 0
}
