package disagg_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

func ExampleSplitter() {
	hub := new(vllmtest.Hub)
	transfer := &vllmtest.Transfer{Hub: hub, Protocol: "nixl"}
	p := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001, Transfer: transfer})
	defer p.Close()
	d := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001, Transfer: transfer})
	defer d.Close()
	roles := map[string]disagg.Role{p.URL: disagg.Prefill, d.URL: disagg.Decode}

	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: p.URL}, {ID: d.URL}}); err != nil {
		panic(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	s, err := disagg.New(disagg.Config{
		Router:      router.New(strategy, view, router.Options{}),
		Place:       func(t router.Target) disagg.Place { return disagg.Place{Role: roles[t.ID]} },
		MinUncached: 2,
	})
	if err != nil {
		panic(err)
	}
	body := []byte(`{"messages":[{"role":"user","content":"Tell me about the sea, and about the wind over it."}]}`)
	pr, err := prompt.FromRequest(path, nil, body)
	if err != nil {
		panic(err)
	}
	err = s.Do(context.Background(), pr, disagg.Request{Path: path, Body: body},
		func(ctx context.Context, a *disagg.Attempt) (router.Outcome, error) {
			resp, err := post(ctx, a.Lease.Decision().Target.ID+path, a.Body)
			if err != nil {
				return router.Outcome{}, err
			}
			defer resp.Body.Close()
			a.FirstToken()
			return router.Outcome{Status: resp.StatusCode}, nil
		})
	fmt.Println(err, s.Stats().Split, p.Stats().Finished, d.Stats().ExternalTokens > 0, hub.Pinned())
	fmt.Println(s.Place(router.Target{ID: p.URL}).Role, s.Place(router.Target{}).Role)
	// Output:
	// <nil> 1 1 true 0
	// prefill both
}

func Example_bodies() {
	body := []byte(`{"prompt":"Hello","stream":true}`)
	prefill, _ := disagg.NIXLPrefill(nil, body)
	fmt.Printf("%.75s\n", prefill)
	stored, _ := disagg.StoredPrefill(nil, body)
	fmt.Printf("%s\n", stored)
	params := disagg.Params([]byte(`{"kv_transfer_params":{"do_remote_prefill":true,"remote_host":"h"}}`))
	decode, _ := disagg.WithParams(nil, body, params)
	fmt.Printf("%s\n", decode)
	both, _ := disagg.WithBootstrap(nil, body, "10.0.0.1", 8998, 77)
	fmt.Printf("%s\n", both)
	// Output:
	// {"prompt":"Hello","max_tokens":1,"max_completion_tokens":1,"stream":false,"
	// {"prompt":"Hello","max_tokens":1,"max_completion_tokens":1,"stream":false}
	// {"prompt":"Hello","stream":true,"kv_transfer_params":{"do_remote_prefill":true,"remote_host":"h"}}
	// {"prompt":"Hello","stream":true,"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":77}
}

func ExampleCheck() {
	fmt.Println(disagg.Check([]byte(`{"prompt":"x","kv_transfer_params":{"do_remote_prefill":true}}`)))
	h := http.Header{disagg.HeaderPrefiller: {"10.0.0.9:80"}}
	disagg.CleanHeader(h)
	fmt.Println(len(h))
	// Output:
	// the request has the member "kv_transfer_params", which a client must not set
	// 0
}

func ExamplePlace_Fits() {
	decode := disagg.Place{Role: disagg.Decode, Connector: "nixl", Zone: "a"}
	fmt.Println(disagg.Place{Role: disagg.Prefill, Connector: "nixl", Zone: "a"}.Fits(decode))
	fmt.Println(disagg.Place{Role: disagg.Prefill, Connector: "nixl", Zone: "b"}.Fits(decode))
	// Output:
	// true
	// false
}

func ExampleConfig_WithDefaults() {
	c := disagg.Config{}.WithDefaults()
	fmt.Println(c.Protocol, c.MinUncached, c.PrefillTimeout, c.DecodeTimeout, c.PinnedFor)
	var e error = &disagg.PrefillError{Status: 422}
	fmt.Println(e)
	// Output:
	// nixl 1024 2m0s 30s 30s
	// disagg: no prefill target served the request: Unprocessable Entity
}

func ExampleSplitter_Split() {
	d := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001})
	defer d.Close()
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		panic(err)
	}
	if err := view.Set([]loadview.Member{{ID: d.URL}}); err != nil {
		panic(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	s, err := disagg.New(disagg.Config{Router: router.New(strategy, view, router.Options{})})
	if err != nil {
		panic(err)
	}
	ctx, body := context.Background(), []byte(`{"messages":[{"role":"user","content":"Hello"}]}`)
	pr, err := prompt.FromRequest(path, nil, body)
	if err != nil {
		panic(err)
	}
	split, err := s.Split(pr, disagg.Request{Path: path, Body: body})
	if err != nil {
		panic(err)
	}
	defer split.End(ctx)
	lease, err := s.Router().Route(ctx, pr)
	if err != nil {
		panic(err)
	}
	o := split.Attempt(ctx, lease, func(ctx context.Context, a *disagg.Attempt) (router.Outcome, error) {
		resp, err := post(ctx, d.URL+path, a.Body)
		if err != nil {
			return router.Outcome{}, err
		}
		defer resp.Body.Close()
		a.FirstToken()
		return router.Outcome{Status: resp.StatusCode, CachedTokens: 0}, nil
	})
	lease.Done(split.Outcome(o))
	fmt.Println(o.Stage, s.Stats().Skipped[disagg.SkipShort])
	// Output: finished 1
}
