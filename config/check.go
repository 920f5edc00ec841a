package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
)

// maxName bounds names and models, in bytes.
const maxName = 512

// A checker looks at what types alone cannot tell.
type checker struct {
	*decoder
	file    *File
	options Options
	policy  egress.Policy
	served  map[string]string // model, alias or adapter, to where it was given first
	used    map[string]bool   // providers that a route names
	reads   map[string]readBy // by strategy
	indexed map[string]bool   // providers whose KV events a route reads
	polled  map[string]bool   // providers whose occupancy a route reads
}

type readBy struct{ index, occupancy bool }

// good reports whether nothing was said about path yet.
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
		c.problems = append(c.problems, *c.problem(c.at(table).key, display(table), key+" is missing")) // and maybe others are too
	case there && value == "" && c.good(path):
		c.fail(path, "is empty")
	case len(value) > maxName && c.good(path):
		c.fail(path, "has more than %d bytes", maxName)
	case there && c.good(path):
		return true
	}
	return false
}

func (c *checker) check() {
	c.policy = c.file.Policy()
	c.served, c.used = make(map[string]string), make(map[string]bool)
	c.indexed, c.polled = make(map[string]bool), make(map[string]bool)
	c.reads = make(map[string]readBy)
	c.globals()
	names, bases := make(map[string]int), make(map[string]int)
	for i := range c.file.Providers {
		path, p := elem(child("", "providers"), i), &c.file.Providers[i]
		c.provider(path, p, names, i)
		if first, double := bases[p.APIBase]; double && p.APIBase != "" {
			c.warn(child(path, "api_base"), "is the address of providers[%d] too; neither counts what the other is sent", first)
		} else {
			bases[p.APIBase] = i
		}
	}
	if _, there := c.tree["routes"]; !there {
		c.problems = append(c.problems, Problem{Key: "routes", Message: "there is no route; a route begins with [[routes]]"})
	} else if len(c.file.Routes) == 0 && c.good(child("", "routes")) {
		c.fail(child("", "routes"), "there is no route")
	}
	for i := range c.file.Routes {
		c.route(elem(child("", "routes"), i), &c.file.Routes[i], names)
	}
	c.unused()
}

func (c *checker) globals() {
	hosts := child(child("", "egress"), "allow_hosts")
	for i, h := range c.file.Egress.AllowHosts {
		if (egress.Policy{AllowHosts: []string{h}}).Validate() != nil && c.good(elem(hosts, i)) {
			c.fail(elem(hosts, i), "%q is not a host name or an address; there are no ports and no patterns here", h)
		}
	}
	for table, path := range map[string]string{"metrics_scrape": c.file.MetricsScrape.Path, "health_probe": c.file.HealthProbe.Path} {
		c.urlPath(child(child("", table), "path"), path)
	}
	health := child("", "health")
	if _, err := loadview.New(c.file.Health); err != nil {
		c.settingsError(health, reflect.TypeOf(c.file.Health), err)
	}
}

func (c *checker) urlPath(path, value string) {
	if u, err := url.Parse(value); c.good(path) && (err != nil || !strings.HasPrefix(value, "/") || u.Host != "") {
		c.fail(path, "%q is not a path; it begins with one /", value)
	}
}

func (c *checker) provider(path string, p *Provider, names map[string]int, i int) {
	if !c.good(path) {
		return
	}
	if at := child(path, "name"); c.required(path, "name", p.Name) {
		if first, double := names[p.Name]; double {
			c.fail(at, "%q is the name of providers[%d] too", p.Name, first)
		} else {
			names[p.Name] = i
		}
		switch i := strings.LastIndexByte(p.Name, '/'); {
		case strings.ContainsFunc(p.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			c.fail(at, "%q has a space or a control character in it", p.Name)
		case i >= 0 && i+1 < len(p.Name) && strings.Trim(p.Name[i+1:], "0123456789") == "":
			c.fail(at, "%q ends in a / and a number, as the names of data-parallel ranks do", p.Name)
		}
	}
	if at := child(path, "kind"); p.Kind != kindOpenAI && c.good(at) {
		c.fail(at, "%q is not known; %s", p.Kind, c.hint(p.Kind, []string{kindOpenAI}))
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
			c.fail(kind, "%q is not known; %s", l.Kind, c.hint(l.Kind, kinds))
		}
		if _, given := c.places[child(at, "stale_secs")]; !given {
			l.StaleSecs = max(l.StaleSecs, 5*l.RefreshSecs)
		}
		if l.StaleSecs < l.RefreshSecs && c.good(child(at, "stale_secs")) && c.good(child(at, "refresh_secs")) {
			c.fail(child(at, "stale_secs"), "is %v, less than refresh_secs, which is %v", l.StaleSecs, l.RefreshSecs)
		} else if _, given := c.places[child(at, "timeout_secs")]; l.TimeoutSecs > l.StaleSecs && c.good(child(at, "timeout_secs")) {
			if given {
				c.fail(child(at, "timeout_secs"), "is %v, more than stale_secs, which is %v", l.TimeoutSecs, l.StaleSecs)
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
		c.fail(path, "is not a URL that begins with %s://", strings.Join(schemes, ":// or "))
		return nil
	case u.User != nil:
		c.fail(path, "has a user or a password in it; secrets come from environment variables, which headers_env names")
		return nil
	case u.RawQuery != "" || u.Fragment != "":
		c.fail(path, "has a query or a fragment, which cannot be kept")
		return nil
	}
	if err := c.policy.CheckURL(raw); err != nil {
		c.fail(path, "%s", strings.TrimPrefix(err.Error(), "egress: "))
	}
	return u
}

// tcp checks an endpoint of ZeroMQ, whose port grows with the rank.
func (c *checker) tcp(path, raw string, ranks int) {
	u := c.url(path, raw, "tcp")
	if u == nil {
		return
	}
	port, err := strconv.Atoi(u.Port())
	switch {
	case !c.good(path):
	case err != nil || u.Hostname() == "" || u.Hostname() == "*" || u.Path != "":
		c.fail(path, "%q is not tcp://host:port", raw)
	case port+ranks-1 > math.MaxUint16:
		c.fail(path, "there is no port for the last of %d ranks", ranks)
	}
}

// env checks that path names an environment variable that is set.
func (c *checker) env(path, name string) {
	if !c.good(path) {
		return
	}
	valid := name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	switch value, ok := c.options.env(name); {
	case !valid: // it may be the secret itself, so it is not repeated
		c.fail(path, "is not the name of an environment variable; the secret itself has no place here")
	case !ok || value == "":
		c.fail(path, "the environment variable %s is not set", name)
	case !headerValue(value):
		c.fail(path, "the environment variable %s holds what cannot stand in a header", name)
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
		case slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Connection", rankHeader}, canonical):
			c.failKey(at, "this header cannot be set")
		default:
			c.env(at, env)
		}
	}
}

// settingsError shows each line of an error of a strategy, or of another
// package, at the key whose field it names.
func (c *checker) settingsError(table string, t reflect.Type, err error) {
	var lines []string
	var flat func(error)
	flat = func(err error) {
		var many interface{ Unwrap() []error }
		if errors.As(err, &many) {
			for _, e := range many.Unwrap() {
				flat(e)
			}
			return
		}
		lines = append(lines, err.Error())
	}
	flat(err)
	for _, line := range lines {
		path := table
		for i := strings.Index(line, ": "); i > 0 && !strings.ContainsAny(line[:i], " .") && strings.ToLower(line[:i]) == line[:i]; i = strings.Index(line, ": ") {
			line = line[i+2:] // the names of packages
		}
		line = strings.TrimPrefix(line, "Config.")
		for _, f := range fields(t) {
			if name := t.Field(f.index).Name; word(line, name) {
				line = strings.ReplaceAll(line, name, f.key)
				if at := child(table, f.key); path == table && c.given(at) {
					path = at
					line = strings.TrimPrefix(strings.TrimPrefix(line, f.key+": "), f.key+" ")
				}
			}
		}
		c.fail(path, "%s", line)
	}
}

// word reports whether s has name as a word of its own.
func word(s, name string) bool {
	letter := func(b byte) bool { return b == '_' || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z' }
	for from := 0; ; {
		i := strings.Index(s[from:], name)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(name)
		if (i == 0 || !letter(s[i-1])) && (end == len(s) || !letter(s[end])) {
			return true
		}
		from = end
	}
}

// hostPort is a tcp endpoint of a rank: the port of the first and its number, as
// engines choose it.
func hostPort(endpoint string, rank int) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", errors.New("config: an endpoint is not tcp://host:port")
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || port+rank > math.MaxUint16 {
		return "", fmt.Errorf("config: %s has no port for rank %d", endpoint, rank)
	}
	return "tcp://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(port+rank)), nil
}
