package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// atRest checks that nothing is left of the load.
func (s *soak) atRest(ctx context.Context, v *verdict, f *fleet, idle float64) {
	// Members that were away begin with a handicap that fades in ten seconds.
	rested := time.Now().Add(11 * time.Second)
	v.check("no replica has a request left", await(ctx,
		func() error { return unless(f.busy() > 0, fmt.Sprint(f.busy(), " are left")) }))
	v.check("the gateway counts no request in flight", await(ctx, func() error {
		counts, err := f.gateway.inFlight(ctx)
		for _, n := range counts {
			if n != 0 && err == nil {
				err = fmt.Errorf("it counts %v", counts)
			}
		}
		return err
	}))
	pause(ctx, time.Until(rested))
	v.check("in flight is the same for every replica: each gets its turn", turns(ctx, f))
	v.check(fmt.Sprintf("goroutines are back to the %.0f of the beginning", idle), await(ctx, func() error {
		if !pause(ctx, sampleEvery) {
			return ctx.Err()
		}
		_, n := f.gateway.samples()
		last := 0.0
		if len(n) > 0 {
			last = n[len(n)-1].v
		}
		// A scrape or a probe may be under way, and the runtime keeps a few workers
		// for its collector that it starts when it first needs them.
		return unless(last == 0 || last > idle+10, fmt.Sprintf("there are %.0f", last))
	}))
}

// await tries until ok returns nil, for at most half a minute.
func await(ctx context.Context, ok func() error) error {
	for end := time.Now().Add(30 * time.Second); ; {
		err := ok()
		if err == nil || time.Now().After(end) || !pause(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// trials is the number of repetitions of turns. A replica that is counted as having
// a request too many escapes one trial of n replicas with a chance of 1/n.
const trials = 5

// turns replaces the strategy with least_load, which leaves the counts as they are,
// and sends as many requests as there are replicas, all open at the same time: if
// all counts are equal, each replica gets one.
func turns(ctx context.Context, f *fleet) error {
	for _, m := range f.members {
		if err := m.server.SetFaults(vllmtest.Faults{Delay: 1500 * time.Millisecond}); err != nil {
			return err
		}
	}
	before := f.model
	f.model, f.strategy = "rest", "least_load"
	if err := f.publish(); err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	c := &clients{url: f.gateway.url, http: &http.Client{Transport: transport, Timeout: time.Minute}}
	ask := func(model string) (*http.Response, error) {
		resp, err := c.post(ctx, http.Header{"Content-Type": {"application/json"}},
			strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}]}`, model)))
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	if err := await(ctx, func() error { // it has read the file when nothing goes by the old name
		resp, err := ask(strings.ReplaceAll(before, "*", "m"))
		if err == nil && resp.StatusCode != http.StatusNotFound {
			err = fmt.Errorf("its file is not in place: %s", resp.Status)
		}
		return err
	}); err != nil {
		return err
	}
	for range trials {
		var mu sync.Mutex
		var errs []error
		got := map[string]int{}
		var wg sync.WaitGroup
		for range f.members {
			wg.Go(func() {
				resp, err := ask("rest")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					errs = append(errs, err)
					return
				}
				got[resp.Header.Get("X-Warmroute-Target")]++
			})
		}
		wg.Wait()
		if errs != nil || len(got) != len(f.members) {
			return errors.Join(append(errs, fmt.Errorf("%d requests, one for each, were sent so: %v", len(f.members), got))...)
		}
	}
	return nil
}
