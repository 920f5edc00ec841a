package file

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
)

// maxName bounds names and models, in bytes.
const maxName = 512

// The bounds of the fleet that a file describes. Each rank is a target, and each route
// has its own list of them.
const (
	maxTargets = 20_000
	maxOffers  = 200_000
)

// A checker finds the problems that types alone do not show.
type checker struct {
	*decoder
	file    *File
	options Options
	policy  egress.Policy
	served  map[string]string // model, alias or adapter, to the key that gave it first
	used    map[string]bool   // providers that a route names
	indexed map[string]bool   // providers with KV events that a route reads
	polled  map[string]bool   // providers with an occupancy that a route reads
	targets int               // of all providers so far
	offers  int               // of all routes so far
}

// good reports whether no problem with path was found yet.
func (c *checker) good(path string) bool {
	return !c.bad[display(path)]
}

// given reports whether the file has path, and it could be read.
func (c *checker) given(path string) bool {
	_, ok := c.places[path]
	return ok && c.good(path)
}

// required reports whether the string at path is there. A missing one is a
// problem of the table around it.
func (c *checker) required(table, key, value string) bool {
	path := child(table, key)
	_, there := c.places[path]
	switch {
	case !there && c.good(table):
		c.failTable(table, "%s is missing", key)
	case there && value == "" && c.good(path):
		c.fail(path, "", "is empty")
	case len(value) > maxName && c.good(path):
		c.fail(path, nil, "has more than %d bytes", maxName)
	case there && c.good(path):
		return true
	}
	return false
}

func (c *checker) check() {
	c.policy = c.file.Policy()
	c.served, c.used = make(map[string]string), make(map[string]bool)
	c.indexed, c.polled = make(map[string]bool), make(map[string]bool)
	c.globals()
	names := make(map[string]int)
	for i := range c.file.Providers {
		c.provider(elem(child("", "providers"), i), &c.file.Providers[i], names, i)
	}
	if _, there := c.tree["routes"]; !there {
		c.problems = append(c.problems, Problem{
			File: c.path, Key: "routes", Message: "there is no route; a route begins with [[routes]]",
		})
	} else if len(c.file.Routes) == 0 && c.good(child("", "routes")) {
		c.fail(child("", "routes"), nil, "there is no route")
	}
	for i := range c.file.Routes {
		c.route(elem(child("", "routes"), i), &c.file.Routes[i], names)
	}
}

func (c *checker) globals() {
	hosts := child(child("", "egress"), "allow_hosts")
	for i, h := range c.file.Egress.AllowHosts {
		if (egress.Policy{AllowHosts: []string{h}}).Validate() != nil && c.good(elem(hosts, i)) {
			c.fail(elem(hosts, i), h, "%q is not a host name or an address; there are no ports and no patterns here", h)
		}
	}
	refused := child(child("", "requests"), "refuse_members")
	for i, name := range c.file.Requests.RefuseMembers {
		if at := elem(refused, i); c.good(at) && (name == "" || len(name) > maxName) {
			c.mustBe(at, strconv.Quote(name[:min(len(name), 64)]), fmt.Sprintf("a name of 1 to %d bytes", maxName))
		}
	}
	for table, path := range map[string]string{
		"metrics_scrape": c.file.MetricsScrape.Path, "health_probe": c.file.HealthProbe.Path,
	} {
		c.urlPath(child(child("", table), "path"), path)
	}
	if t := &c.file.TLS; (t.CertFile == "") != (t.KeyFile == "") && c.good(child("", "tls")) {
		c.failTable(child("", "tls"), "cert_file and key_file go together")
	}
	queue := child("", "queue")
	for key, name := range map[string]string{
		"tenant_header": c.file.Queue.TenantHeader, "priority_header": c.file.Queue.PriorityHeader,
	} {
		if at := child(queue, key); name != "" && !headerName(name) && c.good(at) {
			c.fail(at, name, "%q is not the name of a header", name)
		}
	}
	c.share()
	c.memory()
	health := child("", "health")
	if _, err := adapters.New(c.file.Adapters); err != nil {
		c.settings(child("", "adapters"), reflect.TypeOf(c.file.Adapters), err)
	}
	if _, err := loadview.New(c.file.Health); err != nil {
		c.settings(health, reflect.TypeOf(c.file.Health), err)
	}
}

func (c *checker) urlPath(path, value string) {
	if u, err := url.Parse(value); c.good(path) && (err != nil || !strings.HasPrefix(value, "/") || u.Host != "") {
		c.fail(path, value, "%q is not a path; it begins with one /", value)
	}
}

func (c *checker) provider(path string, p *Provider, names map[string]int, i int) {
	if !c.good(path) {
		return
	}
	if at := child(path, "name"); c.required(path, "name", p.Name) {
		if first, double := names[p.Name]; double {
			c.fail(at, p.Name, "%q is the name of providers[%d] too", p.Name, first)
		} else {
			names[p.Name] = i
		}
		switch i := strings.LastIndexByte(p.Name, '/'); {
		case strings.ContainsFunc(p.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			c.fail(at, p.Name, "%q has a space or a control character in it", p.Name)
		case i >= 0 && i+1 < len(p.Name) && strings.Trim(p.Name[i+1:], "0123456789") == "":
			c.fail(at, p.Name, "%q ends in a / and a number, as the names of data-parallel ranks do", p.Name)
		}
	}
	if at := child(path, "kind"); p.Kind != kindOpenAI && c.good(at) {
		c.unknown(at, p.Kind, []string{kindOpenAI})
	}
	if at := child(path, "role"); !slices.Contains(roles, p.Role) && c.good(at) {
		c.unknown(at, p.Role, roles)
	}
	if c.targets += p.Ranks; c.targets > maxTargets && c.targets-p.Ranks <= maxTargets && c.good(child(path, "ranks")) {
		c.fail(child(path, "ranks"), p.Ranks, "with these the file has more than %d targets", maxTargets)
	}
	if c.required(path, "api_base", p.APIBase) {
		c.url(child(path, "api_base"), p.APIBase, "http", "https")
	}
	if c.given(child(path, "api_key_env")) && p.APIKeyEnv != "" {
		c.env(child(path, "api_key_env"), p.APIKeyEnv)
	}
	c.headers(child(path, "headers_env"), p.HeadersEnv)
	if k := p.KVEvents; k != nil {
		at, ports := child(path, "kv_events"), p.Ranks
		if k.Shared {
			ports = 1
		}
		if c.required(at, "endpoint", k.Endpoint) {
			c.tcp(child(at, "endpoint"), k.Endpoint, ports)
		}
		if c.given(child(at, "replay_endpoint")) && k.ReplayEndpoint != "" {
			c.tcp(child(at, "replay_endpoint"), k.ReplayEndpoint, ports)
		}
	}
	if l := p.LMCache; l != nil {
		at := child(path, "lmcache")
		if c.required(at, "endpoint", l.Endpoint) {
			c.url(child(at, "endpoint"), l.Endpoint, "http", "https")
		}
		kinds := []string{"auto", string(lmcache.KindOccupancy), string(lmcache.KindStatus), string(lmcache.KindMetrics)}
		if kind := child(at, "kind"); l.Kind != "" && !slices.Contains(kinds, l.Kind) && c.good(kind) {
			c.unknown(kind, l.Kind, kinds)
		}
		if _, given := c.places[child(at, "stale_secs")]; !given {
			l.StaleSecs = max(l.StaleSecs, 5*l.RefreshSecs)
		}
		if l.StaleSecs < l.RefreshSecs && c.good(child(at, "stale_secs")) && c.good(child(at, "refresh_secs")) {
			c.fail(child(at, "stale_secs"), l.StaleSecs,
				"is %v, less than refresh_secs, which is %v", l.StaleSecs, l.RefreshSecs)
		} else if l.TimeoutSecs > l.StaleSecs && c.good(child(at, "timeout_secs")) {
			if _, given := c.places[child(at, "timeout_secs")]; given {
				c.fail(child(at, "timeout_secs"), l.TimeoutSecs,
					"is %v, more than stale_secs, which is %v", l.TimeoutSecs, l.StaleSecs)
			} else {
				l.TimeoutSecs = l.StaleSecs
			}
		}
		c.headers(child(at, "headers_env"), l.HeadersEnv)
	}
}

// url checks a URL's form and whether it may be reached.
func (c *checker) url(path, raw string, schemes ...string) *url.URL {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
		c.fail(path, nil, "is not a URL that begins with %s://", strings.Join(schemes, ":// or "))
		return nil
	case u.User != nil:
		c.fail(path, nil, "has a user or a password in it; secrets come from environment variables, which headers_env names")
		return nil
	case u.RawQuery != "" || u.Fragment != "":
		c.fail(path, nil, "has a query or a fragment, which cannot be kept")
		return nil
	}
	if err := c.policy.CheckURL(raw); err != nil {
		c.fail(path, raw, "%s", strings.TrimPrefix(err.Error(), "egress: "))
		c.problems[len(c.problems)-1].Err = err
	}
	return u
}

// tcp checks an endpoint of ZeroMQ. Its port grows with the rank.
func (c *checker) tcp(path, raw string, ranks int) {
	u := c.url(path, raw, "tcp")
	if u == nil {
		return
	}
	port, err := strconv.Atoi(u.Port())
	switch {
	case !c.good(path):
	case err != nil || u.Hostname() == "" || u.Hostname() == "*" || u.Path != "":
		c.fail(path, raw, "%q is not tcp://host:port", raw)
	case port+ranks-1 > math.MaxUint16:
		c.fail(path, raw, "there is no port for the last of %d ranks", ranks)
	}
}

// env checks that path names an environment variable that is set. The name itself is
// in no message: it may be the secret, written there by mistake.
func (c *checker) env(path, name string) {
	if !c.good(path) {
		return
	}
	valid := name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	switch value, ok := c.options.Env(name); {
	case !valid:
		c.fail(path, nil, "is not the name of an environment variable; the secret itself has no place here")
	case !ok || value == "":
		c.fail(path, nil, "names an environment variable that is not set; the secret itself has no place here")
	case !headerValue(value):
		c.fail(path, nil, "names an environment variable whose value cannot stand in a header")
	}
}

// headerName reports whether s is a token as RFC 9110, 5.6.2 has it, headerValue
// whether s can stand in a header.
func headerName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return !bare(r) && !strings.ContainsRune("!#$%&'*+.^`|~", r)
	})
}

func headerValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func (c *checker) headers(path string, hs map[string]string) {
	for name, env := range hs {
		at := child(path, name)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !c.good(at):
		case !headerName(name):
			c.failKey(at, "is not the name of a header")
		case slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Connection", RankHeader}, canonical):
			c.failKey(at, "this header cannot be set")
		default:
			c.env(at, env)
		}
	}
}

// settings adds a problem for each error that err joins: New of a package found it in
// the Config of type t, which the table at path was read into. A *router.ConfigError is
// shown at the key of its field, others at the table.
func (c *checker) settings(table string, t reflect.Type, err error) {
	for _, err := range leaves(err) {
		var bad *router.ConfigError
		if !errors.As(err, &bad) {
			c.fail(table, nil, "%s", err)
			c.problems[len(c.problems)-1].Err = err
			continue
		}
		path, message := table, bad.Error()
		if key := keyOf(t, bad.Field); key != "" {
			message = strings.Replace(message, bad.Field, key, 1)
			if at := child(table, key); c.given(at) {
				path = at
				message = strings.TrimPrefix(strings.TrimPrefix(message, key+": "), key+" ")
			}
		}
		p := c.problem(c.at(path).value, display(path), message)
		p.Value, p.Allowed, p.Err = bad.Value, bad.Allowed, err
		c.add(p)
	}
}

// leaves returns the errors that err joins, also those joined within joined ones.
func leaves(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			var all []error
			for _, e := range joined.Unwrap() {
				all = append(all, leaves(e)...)
			}
			return all
		}
	}
	return []error{err}
}
