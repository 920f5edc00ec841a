package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// fleetFlags are the flags that take the place of a file: one route for every model, over
// all targets. A gateway is made of the file that file returns.
type fleetFlags struct {
	strategy        string
	leastWork       leastwork.Config // MissWeight, ContextWeight, Agree
	targets         targets
	events          kvEvents
	topic           string
	tokens          string // source of token ids; "": header
	tokenizeTimeout time.Duration
	scrape, probe   time.Duration
	failover        router.Options
	kvTransfer      bool     // -allow-kv-transfer
	refuse          repeated // -refuse-member
	maxMemory       int64    // -max-memory; 0: the default
	queue           queueFlags
	share           shareFlags
	tls             file.TLS
}

// queueFlags are the flags of the line in which requests wait.
type queueFlags struct {
	enabled          bool
	requests         int
	prefill          int
	maxWaiting       int
	maxWait          time.Duration
	cachedFirst      time.Duration
	tenant, priority string
}

// shareFlags are the flags of the view that several gateways share.
type shareFlags struct {
	bus, peers repeated
	secretEnv  string
	name       string
}

func strategyNames() string {
	return strings.Join(slices.Sorted(maps.Keys(file.Strategies())), ", ")
}

// check returns an error if flags do not fit each other. The rest is checked as a file.
func (f *fleetFlags) check() error {
	precise := f.strategy == precisecacheaware.Name
	switch mode := cmp.Or(f.tokens, file.TokensFromHeader); {
	case len(f.targets) == 0:
		return errors.New("no -target and no -config; try -demo to see it at work without one")
	case f.failover.Attempts < 1:
		return errors.New("-attempts is less than 1")
	case f.tokenizeTimeout <= 0:
		return errors.New("-tokenize-timeout is not positive")
	case f.scrape < 0 || f.probe < 0:
		return errors.New("-scrape or -probe is negative")
	case !slices.Contains([]string{file.TokensFromHeader, file.TokensFromMemo, file.TokensFromTokenize}, mode):
		return fmt.Errorf("no token source %q; there are header, memo and tokenize", f.tokens)
	case !f.queue.enabled && f.queue != (queueFlags{maxWaiting: f.queue.maxWaiting, maxWait: f.queue.maxWait}):
		return errors.New("-queue-requests, -queue-prefill, -queue-cached-first, -queue-tenant-header and -queue-priority-header need -queue")
	case f.maxMemory < 0:
		return errors.New("-max-memory is negative")
	case len(f.share.bus) == 0 && (len(f.share.peers) > 0 || f.share.name != ""):
		return errors.New("-share-peer and -share-name need -share")
	case !precise && (len(f.events) > 0 || f.topic != "" || mode != file.TokensFromHeader):
		return errors.New("-kv-events, -kv-topic and -tokens need -strategy precise_cache_aware")
	case precise && len(f.events) != len(f.targets):
		return fmt.Errorf("there are %d -kv-events for %d -target; give one for each, in the same order",
			len(f.events), len(f.targets))
	}
	return nil
}

// file returns the flags as a configuration file.
func (f *fleetFlags) file() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if f.maxMemory != 0 {
		line("max_memory = %d", f.maxMemory) // before all tables
	}
	for _, t := range []struct {
		name  string
		every time.Duration
	}{{"metrics_scrape", f.scrape}, {"health_probe", f.probe}} {
		if t.every > 0 {
			line("[%s]\nenabled = true\ninterval_secs = %v", t.name, t.every.Seconds())
		}
	}
	if f.kvTransfer || len(f.refuse) > 0 {
		line("[requests]\nallow_kv_transfer = %v\nrefuse_members = [%s]", f.kvTransfer, f.refuse.list())
	}
	if q := f.queue; q.enabled {
		line("[queue]\nenabled = true\nrequests = %d\nprefill = %d\nmax_waiting = %d\nmax_wait_secs = %v\ncached_first_secs = %v",
			q.requests, q.prefill, q.maxWaiting, q.maxWait.Seconds(), q.cachedFirst.Seconds())
		line("tenant_header = %s\npriority_header = %s", quote(q.tenant), quote(q.priority))
	}
	if t := f.tls; t != (file.TLS{}) {
		line("[tls]\nca_file = %s\ncert_file = %s\nkey_file = %s", quote(t.CAFile), quote(t.CertFile), quote(t.KeyFile))
	}
	if s := f.share; len(s.bus) > 0 {
		line("[share]\nbus = [%s]\npeers = [%s]\nsecret_env = %s\nname = %s", s.bus.list(), s.peers.list(),
			quote(s.secretEnv), quote(s.name))
	}
	for i, t := range f.targets {
		line("[[providers]]\nname = %s\napi_base = %s", quote(t.name()), quote(t.url))
		if i < len(f.events) {
			line("[providers.kv_events]\nendpoint = %s\nreplay_endpoint = %s\ntopic = %s",
				quote(f.events[i].events), quote(f.events[i].replay), quote(f.topic))
		}
	}
	line("[[routes]]\nmodel = \"*\"\nstrategy = %s", quote(f.strategy))
	for _, t := range f.targets {
		line("[[routes.targets]]\nprovider = %s\nweight = %v", quote(t.name()), t.weight)
	}
	line("[routes.failover]\nfail_open = %v", f.failover.FailOpen)
	if f.failover.Attempts != 0 {
		line("attempts = %d", f.failover.Attempts)
	}
	for k, d := range map[string]time.Duration{
		"backoff": f.failover.Backoff, "max_backoff": f.failover.MaxBackoff, "max_retry_after": f.failover.MaxRetryAfter,
		"attempt_timeout": f.failover.AttemptTimeout, "wait": f.failover.Wait,
	} {
		if d != 0 {
			line("%s = %q", k, d)
		}
	}
	if w := f.leastWork; f.strategy == leastwork.Name {
		line("[routes.least_work]\nmiss_weight = %v\ncontext_weight = %v\nagree = %v", w.MissWeight, w.ContextWeight, w.Agree)
	}
	if f.tokens != "" && f.tokens != file.TokensFromHeader {
		line("[routes.token_source]\nkind = %s\ntimeout_secs = %v",
			quote(f.tokens), cmp.Or(f.tokenizeTimeout, time.Second).Seconds())
	}
	return b.String()
}

// quote returns s as a string of TOML. Its escapes are those of JSON.
func quote(s string) string {
	q, err := json.Marshal(s)
	if err != nil {
		return `""` // no string fails
	}
	return string(q)
}

// repeated is a flag that can be given several times.
type repeated []string

// list returns the values as the elements of an array of TOML.
func (r repeated) list() string {
	var quoted []string
	for _, s := range r {
		quoted = append(quoted, quote(s))
	}
	return strings.Join(quoted, ", ")
}

// String is for package flag.
func (r *repeated) String() string { return strings.Join(*r, " ") }

// Set adds a value.
func (r *repeated) Set(s string) error { *r = append(*r, s); return nil }

// target is one value of -target.
type target struct {
	url    string
	weight float64
}

// name returns the target's ID, which is its URL, but for one that would look like a
// data-parallel rank's.
func (t target) name() string {
	if i := strings.LastIndexByte(t.url, '/'); strings.Trim(t.url[i+1:], "0123456789") == "" {
		return t.url + "/"
	}
	return t.url
}

// targets are the values of -target.
type targets []target

// String is for package flag.
func (t *targets) String() string {
	var s []string
	for _, m := range *t {
		s = append(s, m.url)
	}
	return strings.Join(s, " ")
}

// Set adds a target: URL or URL=weight.
func (t *targets) Set(s string) error {
	m, err := parseTarget(s)
	if err != nil {
		return err
	}
	for _, o := range *t {
		if o.url == m.url {
			return fmt.Errorf("%s is given twice", m.url)
		}
	}
	*t = append(*t, m)
	return nil
}

func parseTarget(s string) (target, error) {
	address, weight, weighted := s, "", false
	if i := strings.LastIndexByte(s, '='); i >= 0 {
		address, weight, weighted = s[:i], s[i+1:], true
	}
	u, err := url.Parse(address)
	if err != nil {
		return target{}, err
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return target{}, errors.New("want http://host:port or https://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return target{}, errors.New("a target has no user, query or fragment")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = strings.TrimSuffix(u.RawPath, "/")
	t := target{url: u.String(), weight: 1}
	if weighted {
		t.weight, err = strconv.ParseFloat(weight, 64)
		if err != nil || !(t.weight > 0) || t.weight > 1e6 {
			return target{}, fmt.Errorf("weight %q is not a number above 0, at most 1e6", weight)
		}
	}
	return t, nil
}

// kvEvents are the values of -kv-events, one for each -target in the same order.
type kvEvents []kvEndpoint

type kvEndpoint struct{ events, replay string }

// String is for package flag.
func (k *kvEvents) String() string {
	var s []string
	for _, e := range *k {
		s = append(s, strings.TrimSuffix(e.events+","+e.replay, ","))
	}
	return strings.Join(s, " ")
}

// Set adds EVENTS or EVENTS,REPLAY.
func (k *kvEvents) Set(s string) error {
	events, replay, both := strings.Cut(s, ",")
	if events == "" || both && replay == "" {
		return errors.New("want tcp://host:port or tcp://host:port,tcp://host:port")
	}
	*k = append(*k, kvEndpoint{events, replay})
	return nil
}
