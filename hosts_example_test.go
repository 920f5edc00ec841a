package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastload"
)

// A host with retries of its own (Echo's ProxyBalancer, Kratos' selector) asks for a
// target each time that it sends. It keeps one Request for each of its requests, in
// the request's context for example, and the leases are numbered, exclude the targets
// that were tried, wait and call the hooks as those of Retry do.
func ExampleRequest() {
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}, {ID: "vllm-3"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{Trace: router.Trace{
		Retry: func(_ context.Context, i router.RetryInfo) { fmt.Println("failed:", i.Outcome.Status) },
	}})

	request := r.Request(router.Prompt{Model: "llama", Text: "Why is the sky blue?"})
	seen := map[string]bool{}
	for range 3 { // the host's own loop, with its own limit
		lease, err := request.Next(context.Background()) // the host's hook: "which target?"
		if err != nil {
			panic(err)
		}
		status := http.StatusServiceUnavailable // the host sends; here all but the third fail
		if lease.Attempt() == 3 {
			status = http.StatusOK
		}
		lease.Done(router.Outcome{Status: status}) // the host's hook: "it has ended"
		seen[lease.Decision().Target.ID] = true
		if status == http.StatusOK {
			fmt.Println("attempt", lease.Attempt(), "answered, after", len(seen), "targets")
			break
		}
	}
	// Output:
	// failed: 503
	// failed: 503
	// attempt 3 answered, after 3 targets
}

// A host that gives each attempt a time-out says so by the cause of its context:
// then a replica that hangs is blamed, not the client.
func Example_attemptTimeout() {
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{CoolAfter: 1}) // leave a target alone after one failure
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1"}, {ID: "vllm-2"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{})

	client := context.Background()
	ctx, cancel := context.WithTimeoutCause(client, 10*time.Millisecond, router.ErrAttemptTimeout)
	defer cancel()
	l, err := r.Route(ctx, router.Prompt{Text: "hello"})
	if err != nil {
		panic(err)
	}
	<-ctx.Done() // the replica hangs
	// The engine may be computing the reply, so it is not sent again by default. A host
	// that knows that nothing was sent says so, and one with requests that may be
	// computed twice sets Options.Retryable.
	next, err := l.Retry(client, router.Outcome{Err: context.Cause(ctx), NotSent: true})
	if err != nil {
		panic(err)
	}
	fmt.Println("attempt", next.Attempt(), "at another replica:", next.Decision().Target.ID != l.Decision().Target.ID)
	next.Done(router.Outcome{Status: http.StatusOK})
	// Output: attempt 2 at another replica: true
}

// A host with contexts that never end (fasthttp recycles one for each connection), or
// end before the reply has been read, gives each lease a context of its own, and
// settles it itself, in a defer: there is nobody else who would.
func Example_endlessContext() {
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{})

	handle := func(host context.Context, upstream func() (int, error)) (err error) {
		l, err := r.Route(context.WithoutCancel(host), router.Prompt{Text: "hello"})
		if err != nil {
			return err
		}
		o := router.Outcome{Stage: router.Canceled} // if upstream panics
		defer func() { l.Done(o) }()
		o = router.Outcome{}
		o.Status, o.Err = upstream()
		return o.Err
	}
	inFlight := func() int { return fleet.Snapshot()[0].Target.Load.InFlight }

	host, cancel := context.WithCancel(context.Background())
	err = handle(host, func() (int, error) {
		cancel() // the host's context ends; the request to the engine goes on
		fmt.Println("in flight:", inFlight())
		return http.StatusOK, nil
	})
	fmt.Println(err, "in flight:", inFlight())
	// Output:
	// in flight: 1
	// <nil> in flight: 0
}

// A host that wants an address and a function to call at the end (KubeAI's
// AwaitBestAddress) gets the lease's Done. It waits for a target that is not there
// yet if Options.Wait says so.
func Example_addressAndDone() {
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "vllm-1", Ref: "10.0.0.1:8000"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{Wait: time.Minute})

	awaitBestAddress := func(ctx context.Context, text string) (addr string, done func(), err error) {
		l, err := r.Route(ctx, router.Prompt{Text: text})
		if err != nil {
			return "", nil, err
		}
		return l.Decision().Target.Ref.(string), func() { l.Done(router.Outcome{}) }, nil
	}
	addr, done, err := awaitBestAddress(context.Background(), "hello")
	if err != nil {
		panic(err)
	}
	fmt.Println(addr)
	done()
	fmt.Println("in flight:", fleet.Snapshot()[0].Target.Load.InFlight)
	// Output:
	// 10.0.0.1:8000
	// in flight: 0
}

// Among routes over the targets that one request may use, here those of its tenant.
func ExampleRouter_Among() {
	strategy, err := leastload.New(leastload.Config{})
	if err != nil {
		panic(err)
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := fleet.Set([]loadview.Member{{ID: "red-1"}, {ID: "blue-1"}, {ID: "blue-2"}}); err != nil {
		panic(err)
	}
	r := router.New(strategy, fleet, router.Options{})

	red := r.Among(func(t router.Target) bool { return strings.HasPrefix(t.ID, "red-") })
	l, err := red.Route(context.Background(), router.Prompt{Text: "hello"})
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Decision().Target.ID)
	_, err = l.Retry(context.Background(), router.Outcome{Err: errors.New("connection refused")})
	fmt.Println(err) // there is no other red one
	// Output:
	// red-1
	// connection refused
}

// A page or a log that shows reasons takes their words from Reasons.
func ExampleReasons() {
	for _, r := range router.Reasons()[:3] {
		fmt.Printf("%s: %s\n", r.Reason, r.Text)
	}
	// Output:
	// warm: it holds enough of the prompt
	// spill: a warm target was overloaded, so another took it
	// cold: none held enough; the least loaded
}
