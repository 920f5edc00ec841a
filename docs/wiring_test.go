package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

type engine struct{ id, events, replay string }

// precise is a router that knows what the engines' own events say.
func precise(ctx context.Context, engines []engine) (*router.Router, error) {
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		return nil, err
	}
	strategy, err := leastwork.New(leastwork.Config{Index: index})
	if err != nil {
		return nil, err
	}
	for _, e := range engines {
		sub, err := zmqsub.New(zmqsub.Config{
			Endpoint: e.events,
			Targets:  []zmqsub.Target{{ID: e.id, Replay: e.replay}},
			Index:    index,
		})
		if err != nil {
			return nil, err
		}
		go func() { _ = sub.Run(ctx) }()
	}
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		return nil, err
	}
	var members []loadview.Member
	for _, e := range engines {
		members = append(members, loadview.Member{ID: e.id})
	}
	return router.New(strategy, fleet, router.Options{}), fleet.Set(members)
}

// complete sends a prompt of token ids to an engine.
func complete(base string, tokens []uint32) {
	body := fmt.Sprintf(`{"prompt":%s,"max_tokens":1}`, strings.ReplaceAll(fmt.Sprint(tokens), " ", ","))
	resp, err := http.Post(base+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	_ = resp.Body.Close()
}

// The prompt went to the second engine through another gateway. This one has never
// seen it, and knows.
func Example_precise() {
	var engines []engine
	var servers []*vllmtest.Server
	for i := range 2 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6, Events: &vllmtest.Events{}})
		defer s.Close()
		servers = append(servers, s)
		engines = append(engines, engine{fmt.Sprintf("vllm-%d", i+1), s.Events().Endpoint(), s.Events().ReplayEndpoint()})
	}
	tokens := make([]uint32, 100)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	complete(servers[0].URL, tokens[:1]) // so that each has said something
	complete(servers[1].URL, tokens)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, err := precise(ctx, engines)
	if err != nil {
		panic(err)
	}
	for {
		c, err := r.Explain(ctx, router.Prompt{Tokens: tokens})
		if err != nil {
			panic(err)
		}
		if c[0].Cached > 0 {
			fmt.Println(c[0].Target.ID, c[0].Cached, "of", c[0].Length, c[0].Unit)
			return
		}
		time.Sleep(time.Millisecond) // the events have not come yet
	}
	// Output: vllm-2 96 of 100 tokens
}
