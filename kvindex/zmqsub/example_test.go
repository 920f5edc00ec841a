package zmqsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/vllmtest"
)

// engine starts a replica that publishes its KV events, by a rank if it has
// several.
func engine(ranks int, e vllmtest.Events) *vllmtest.Server {
	return vllmtest.NewServer(vllmtest.Config{Ranks: ranks, TimeScale: 1e-6, Events: &e})
}

// ask sends a prompt of token ids to an engine.
func ask(s *vllmtest.Server, rank int, tokens []uint32) {
	body := fmt.Sprintf(`{"prompt":%s,"max_tokens":1}`, strings.ReplaceAll(fmt.Sprint(tokens), " ", ","))
	req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("X-data-parallel-rank", fmt.Sprint(rank))
	resp, err := s.Client().Do(req)
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
}

// wait waits until cond holds: events arrive a moment after the reply.
func wait(cond func() bool) {
	for !cond() {
		time.Sleep(time.Millisecond)
	}
}

// One engine feeds the index, also with the blocks that it had cached before the subscriber
// came.
func Example() {
	vllm := engine(1, vllmtest.Events{Topic: "kv-events"})
	defer vllm.Close()
	prompt := make([]uint32, 100)
	ask(vllm, 0, prompt)

	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := zmqsub.New(zmqsub.Config{
		Endpoint: vllm.Events().Endpoint(), // as in "tcp://vllm-1:5557"
		Targets:  []zmqsub.Target{{ID: "vllm-1", Topic: "kv-events", Replay: vllm.Events().ReplayEndpoint()}},
		Index:    index,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- sub.Run(ctx) }()

	wait(func() bool { return sub.State("vllm-1") == zmqsub.Live })
	cached := index.Match(router.Prompt{Tokens: prompt}, []string{"vllm-1"}, nil)
	fmt.Println("cached tokens:", cached[0])

	stop()
	fmt.Println("ended by its context:", errors.Is(<-done, context.Canceled))
	// Output:
	// cached tokens: 96
	// ended by its context: true
}

// A bad value is an error that names the field.
func ExampleNew() {
	_, err := zmqsub.New(zmqsub.Config{Endpoint: "vllm-1:5557", Queue: -1})
	fmt.Println(err)
	// Output:
	// zmqsub: Endpoint: "vllm-1:5557" does not begin with tcp://
	// zmqsub: Index must be given
	// zmqsub: Targets: there are 0; there must be between 1 and 65536
	// zmqsub: Queue is -1; it must be between 0 and 1048576
}

// Data-parallel ranks are targets of their own, each on the next port. The request
// is then sent with the header X-data-parallel-rank.
func ExampleRankEndpoint() {
	vllm := engine(2, vllmtest.Events{})
	defer vllm.Close()
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ranks := []string{"vllm-1 rank 0", "vllm-1 rank 1"}
	for rank, id := range ranks {
		endpoint, err := zmqsub.RankEndpoint(vllm.Events().Endpoint(), rank)
		if err != nil {
			log.Fatal(err)
		}
		replay, err := zmqsub.RankEndpoint(vllm.Events().ReplayEndpoint(), rank)
		if err != nil {
			log.Fatal(err)
		}
		sub, err := zmqsub.New(zmqsub.Config{Endpoint: endpoint, Targets: []zmqsub.Target{{ID: id, Replay: replay}},
			Index: index})
		if err != nil {
			log.Fatal(err)
		}
		go func() { _ = sub.Run(ctx) }()
	}
	ask(vllm, 0, make([]uint32, 50))
	ask(vllm, 1, make([]uint32, 100))
	wait(func() bool { return index.Trusted(ranks[0]) && index.Trusted(ranks[1]) })
	fmt.Println(index.Match(router.Prompt{Tokens: make([]uint32, 100)}, ranks, nil))

	fmt.Println(zmqsub.RankEndpoint("tcp://vllm-1:5557", 3))
	// Output:
	// [48 96]
	// tcp://vllm-1:5560 <nil>
}

// Several ranks in one stream are distinguished by the rank that each message names.
func ExampleTarget_ranks() {
	dynamo := engine(2, vllmtest.Events{Shared: true})
	defer dynamo.Close()
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ranks := []string{"rank 0", "rank 1"}
	sub, err := zmqsub.New(zmqsub.Config{
		Endpoint: dynamo.Events().Endpoint(), Index: index,
		Targets: []zmqsub.Target{{ID: "trtllm-1", Ranks: ranks, Replay: dynamo.Events().ReplayEndpoint()}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ask(dynamo, 1, make([]uint32, 100))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = sub.Run(ctx) }()
	wait(func() bool { return index.Trusted("rank 0") && index.Trusted("rank 1") })
	fmt.Println(index.Match(router.Prompt{Tokens: make([]uint32, 100)}, ranks, nil))
	// Output:
	// [0 96]
}

// With Bind the engines connect, and their topics distinguish them.
func ExampleSubscriber_Addr() {
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := zmqsub.New(zmqsub.Config{
		Endpoint: "tcp://127.0.0.1:0", // as in "tcp://*:5557"
		Bind:     true, Index: index,
		Targets: []zmqsub.Target{{ID: "vllm-1", Topic: "kv@10.0.0.1@"}, {ID: "vllm-2", Topic: "kv@10.0.0.2@"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = sub.Run(ctx) }()
	wait(func() bool { return sub.Addr() != "" })
	host, _, _ := strings.Cut(sub.Addr(), ":")
	fmt.Println("listens on", host)
	// Output:
	// listens on 127.0.0.1
}

// Trace reports the states of a stream.
func ExampleTrace() {
	vllm := engine(1, vllmtest.Events{})
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	told := make(chan string, 10)
	sub, err := zmqsub.New(zmqsub.Config{
		Endpoint: vllm.Events().Endpoint(), Index: index, Targets: []zmqsub.Target{{ID: "vllm-1"}},
		Trace: zmqsub.Trace{Transition: func(id string, from, to zmqsub.State, why string) {
			if to == zmqsub.Down { // why has the network's words
				why = "the connection is lost"
			}
			told <- fmt.Sprintf("%s: %v -> %v: %s", id, from, to, why)
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = sub.Run(ctx) }()

	wait(func() bool { return vllm.Events().Subscribers() == 1 })
	ask(vllm, 0, make([]uint32, 100))
	fmt.Println(<-told)
	vllm.Close()
	fmt.Println(<-told)
	// Output:
	// vllm-1: cold -> live: message
	// vllm-1: live -> down: the connection is lost
}

func ExampleSubscriber_Stats() {
	vllm := engine(1, vllmtest.Events{})
	defer vllm.Close()
	ask(vllm, 0, make([]uint32, 100))
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := zmqsub.New(zmqsub.Config{
		Endpoint: vllm.Events().Endpoint(), Index: index,
		Targets: []zmqsub.Target{{ID: "vllm-1", Replay: vllm.Events().ReplayEndpoint()}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = sub.Run(ctx) }()
	wait(func() bool { return sub.State("vllm-1") == zmqsub.Live })
	st := sub.Stats()
	fmt.Println("connected:", st.Connects, "replays:", st.Replays, "replayed:", st.Replayed, "gaps:", st.Gaps)
	fmt.Println("times live:", st.Transitions[zmqsub.Live])
	// Output:
	// connected: 1 replays: 1 replayed: 1 gaps: 0
	// times live: 1
}

func ExampleState() {
	for s := zmqsub.Cold; s <= zmqsub.Down; s++ {
		fmt.Print(s, " ")
	}
	fmt.Println()
	// Output:
	// cold partial live resyncing down
}
