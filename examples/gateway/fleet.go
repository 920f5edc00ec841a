package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/consistenthash"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/poweroftwo"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
)

// choice says how to choose: the strategy that -strategy names, and what least_work
// is told beside; all else has its defaults.
type choice struct {
	strategy  string
	leastWork leastwork.Config
	precise   *precise // nil: precise_cache_aware without an index
}

// strategies makes the strategies that can be chosen.
var strategies = map[string]func(choice) (router.Strategy, error){
	cacheaware.Name:     func(choice) (router.Strategy, error) { return cacheaware.New(cacheaware.Config{}) },
	consistenthash.Name: func(choice) (router.Strategy, error) { return consistenthash.New(consistenthash.Config{}) },
	leastload.Name:      func(choice) (router.Strategy, error) { return leastload.New(leastload.Config{}) },
	leastwork.Name:      func(c choice) (router.Strategy, error) { return leastwork.New(c.leastWork) },
	pipeline.Name:       func(choice) (router.Strategy, error) { return pipeline.New(pipeline.Config{}) },
	poweroftwo.Name:     func(choice) (router.Strategy, error) { return poweroftwo.New(poweroftwo.Config{}) },
	precisecacheaware.Name: func(c choice) (router.Strategy, error) {
		if c.precise != nil {
			return c.precise.strategy, nil
		}
		return precisecacheaware.New(precisecacheaware.Config{})
	},
	random.Name:     func(choice) (router.Strategy, error) { return random.New(random.Config{}) },
	roundrobin.Name: func(choice) (router.Strategy, error) { return roundrobin.New(roundrobin.Config{}) },
}

func strategyNames() string {
	return strings.Join(slices.Sorted(maps.Keys(strategies)), ", ")
}

func newStrategy(c choice) (router.Strategy, error) {
	f, ok := strategies[c.strategy]
	if !ok {
		return nil, fmt.Errorf("no strategy %q; there are %s", c.strategy, strategyNames())
	}
	return f(c)
}

// targets are the values of -target.
type targets []loadview.Member

// String is for package flag.
func (t *targets) String() string {
	return strings.Join(t.ids(), " ")
}

// ids returns the targets' names.
func (t targets) ids() []string {
	var s []string
	for _, m := range t {
		s = append(s, m.ID)
	}
	return s
}

// Set adds a target: URL or URL=weight.
func (t *targets) Set(s string) error {
	m, err := parseTarget(s)
	if err != nil {
		return err
	}
	for _, o := range *t {
		if o.ID == m.ID {
			return fmt.Errorf("%s is given twice", m.ID)
		}
	}
	*t = append(*t, m)
	return nil
}

// watch makes loadview read the targets' pages.
func (t targets) watch(metrics, health bool) {
	for i := range t {
		if metrics {
			t[i].Metrics = t[i].ID + "/metrics"
		}
		if health {
			t[i].Health = t[i].ID + "/health"
		}
	}
}

func parseTarget(s string) (loadview.Member, error) {
	var m loadview.Member
	address, weight, weighted := s, "", false
	if i := strings.LastIndexByte(s, '='); i >= 0 {
		address, weight, weighted = s[:i], s[i+1:], true
	}
	u, err := url.Parse(address)
	if err != nil {
		return m, err
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return m, errors.New("want http://host:port or https://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return m, errors.New("a target has no user, query or fragment")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = strings.TrimSuffix(u.RawPath, "/")
	m.ID, m.Weight, m.Ref = u.String(), 1, u
	if weighted {
		m.Weight, err = strconv.ParseFloat(weight, 64)
		if err != nil || !(m.Weight > 0) || m.Weight > 1e6 {
			return m, fmt.Errorf("weight %q is not a number above 0, at most 1e6", weight)
		}
	}
	return m, nil
}

// newRouter joins the chosen strategy with a fleet of members.
func newRouter(c choice, members []loadview.Member, view loadview.Config, o router.Options) (*router.Router, *loadview.View, error) {
	s, err := newStrategy(c)
	if err != nil {
		return nil, nil, err
	}
	var r *router.Router // made before the first member can leave
	view.Trace.Forget = func(id string) { r.Forget(id) }
	v, err := loadview.New(view)
	if err != nil {
		return nil, nil, err
	}
	r = router.New(s, v, o)
	if c.precise != nil {
		c.precise.forget = r.Forget
	}
	return r, v, v.Set(members)
}
