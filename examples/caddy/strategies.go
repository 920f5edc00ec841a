package warmroute

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/consistenthash"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/poweroftwo"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
)

// build makes the strategy. The error names the option that is off.
func (s Strategy) build() (router.Strategy, error) {
	switch s.Name {
	case leastwork.Name:
		var c leastwork.Config
		return set(s, fields{
			"miss_weight":    &c.MissWeight,
			"context_weight": &c.ContextWeight,
			"request_tokens": &c.RequestTokens,
			"agree":          &c.Agree,
			"max_nodes":      &c.MaxNodes,
			"max_bytes":      &c.MaxBytes,
		}, &c, leastwork.New)
	case cacheaware.Name:
		var c cacheaware.Config
		return set(s, fields{
			"threshold":       &c.Threshold,
			"overload_slack":  &c.OverloadSlack,
			"overload_factor": &c.OverloadFactor,
			"held_share":      &c.HeldShare,
			"max_nodes":       &c.MaxNodes,
			"max_bytes":       &c.MaxBytes,
		}, &c, cacheaware.New)
	case pipeline.Name:
		var c pipeline.Config
		return set(s, fields{
			"static_weight":   &c.StaticWeight,
			"load_weight":     &c.LoadWeight,
			"load_half":       &c.LoadHalf,
			"affinity_weight": &c.AffinityWeight,
			"session_ttl":     &c.SessionTTL,
			"max_sessions":    &c.MaxSessions,
			"overload_slack":  &c.OverloadSlack,
			"overload_factor": &c.OverloadFactor,
			"max_nodes":       &c.MaxNodes,
			"max_bytes":       &c.MaxBytes,
		}, &c, pipeline.New)
	case consistenthash.Name:
		var c consistenthash.Config
		return set(s, fields{
			"load_factor":  &c.LoadFactor,
			"prefix_bytes": &c.PrefixBytes,
		}, &c, consistenthash.New)
	case leastload.Name:
		return set(s, nil, &leastload.Config{}, leastload.New)
	case poweroftwo.Name:
		return set(s, nil, &poweroftwo.Config{}, poweroftwo.New)
	case roundrobin.Name:
		return set(s, nil, &roundrobin.Config{}, roundrobin.New)
	case random.Name:
		return set(s, nil, &random.Config{}, random.New)
	}
	return nil, fmt.Errorf("name: there is no %q", s.Name)
}

// fields are the destinations of options: a *float64, an *int or a *time.Duration for
// each.
type fields map[string]any

// set fills in c and makes the strategy.
func set[C any, S router.Strategy](s Strategy, f fields, c *C, make func(C) (S, error)) (router.Strategy, error) {
	var names []string
	for name := range s.Options {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		to, ok := f[name]
		if !ok {
			return nil, fmt.Errorf("options: %s has no %q", s.Name, name)
		}
		raw := s.Options[name]
		var err error
		if d, ok := to.(*time.Duration); ok {
			var cd caddy.Duration
			err = cd.UnmarshalJSON(raw)
			*d = time.Duration(cd)
		} else {
			err = json.Unmarshal(raw, to)
		}
		if err != nil {
			return nil, fmt.Errorf("options: %s: %s is not a value of it", name, strings.TrimSpace(string(raw)))
		}
	}
	made, err := make(*c)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return made, nil
}
