package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// page has the fields that are read of the gateway's page /debug/warmroute.
type page struct {
	Precise struct {
		Judged, Mismatched int
		Targets            map[string]struct{ State string }
	}
}

func (p *page) live(id string) bool { return p.Precise.Targets[id].State == "live" }

// state returns the state of a target's stream under the first of its names that
// the page has: flags name a target by its address, a file by its provider.
func (p *page) state(names ...string) string {
	for _, n := range names {
		if t, ok := p.Precise.Targets[n]; ok {
			return t.State
		}
	}
	return "unknown"
}

// page asks the gateway for its account.
func (f *fleet) page(ctx context.Context) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/debug/warmroute", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	var p page
	if err := json.Unmarshal(b, &p); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the gateway's account: %s, %v: %.200s", resp.Status, err, b)
	}
	return &p, nil
}
