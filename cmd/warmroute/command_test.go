package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// program is the command at work.
type program struct {
	url  string
	log  logged
	stop func() error
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// start starts the command and waits until it listens.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-listen", "127.0.0.1:0", "-drain-delay", "1ms"}, args...), io.Discard, &p.log)
	}()
	stopped := false
	p.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("the gateway ended: %v", err)
		}
		if t.Failed() {
			t.Logf("the log:\n%s", p.log.String())
		}
	})
	eventually(t, "it listens", func() bool {
		select {
		case err := <-ended:
			stopped = true
			t.Fatalf("the gateway ended: %v\n%s", err, p.log.String())
		default:
		}
		if m := listening.FindStringSubmatch(p.log.String()); m != nil {
			p.url = "http://" + m[1]
		}
		return p.url != ""
	})
	return p
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// signalled starts what package signal starts once for a process, which is no leak.
func signalled(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}

// place puts a file in the place of another in one step.
func place(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestCheck: what is printed, where, and with which exit status.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		place(t, path, text)
		return path
	}
	good := file("good.toml", "[[providers]]\nname = \"a\"\napi_base = \"http://a:1\"\n[[routes]]\nmodel = "+
		"\"m\"\ntargets = [{ provider = \"a\" }]\n")
	warned := file("warned.toml", "[[providers]]\nname = \"a\"\napi_base = \"http://a:1\"\n[[routes]]\nmodel = "+
		"\"m\"\nstrategy = \"lmcache_aware\"\ntargets = [{ provider = \"a\" }]\n")
	bad := file("bad.toml", "[[providers]]\nname = \"a\"\napi_base = \"http://169.254.169.254\"\n[[routes]]\nmodel = "+
		"\"m\"\nstrategi = \"best\"\ntargets = [{ provider = \"b\" }]\n")
	missing := filepath.Join(dir, "missing.toml")
	busy, free := upstream(t, func(http.ResponseWriter, *http.Request) {}), "127.0.0.1:0"
	for _, c := range []struct {
		name   string
		args   []string
		status int
		stdout string   // a part of it; "": it is empty
		stderr []string // parts of it; none: it is empty
	}{
		{"a good file", []string{"-config", good, "-check"}, 0, "attempts = 3\n", nil},
		{"two dashes", []string{"--config", good, "--check"}, 0, "strategy = 'least_work'\n", nil},
		{"warnings", []string{"-config", warned, "-check"}, 0, "lmcache_aware",
			[]string{warned + ":6:1: warning: routes[0].strategy: no provider"}},
		{"warnings, strict", []string{"-config", warned, "-check", "-strict"}, 2, "",
			[]string{warned + ":6:1: warning: ", "-strict"}},
		{"good, strict", []string{"-config", good, "-check", "-strict"}, 0, "least_work", nil},
		{"a bad file", []string{"-config", bad, "-check"}, 2, "", []string{
			bad + ":3:12: providers[0].api_base: ", bad + ":6:1: routes[0].strategi: ", "did you mean \"strategy\"?",
			bad + ":7:",
		}},
		{"a bad file without -check", []string{"-config", bad}, 2, "", []string{bad + ":3:12: "}},
		{"no file", []string{"-config", missing, "-check"}, 1, "", []string{missing}},
		{"flags", []string{"-target", "http://a:1=2", "-attempts", "7", "-check"}, 0, "attempts = 7\n", nil},
		{"bad flags", []string{"-target", "http://169.254.169.254", "-check"}, 2, "",
			[]string{"providers[0].api_base: ", "link-local"}},
		{"no flags", []string{"-check"}, 2, "", []string{"-target", "-config"}},
		{"unknown flag", []string{"-unknown"}, 2, "", []string{"-unknown"}},
		{"both", []string{"-config", good, "-strategy", "random"}, 2, "", []string{"-strategy"}},
		{"a port that is taken", []string{"-config", good, "-listen", strings.TrimPrefix(busy, "http://")}, 1, "",
			[]string{"address already in use"}},
		{"help", []string{"-h"}, 0, "", []string{"-config FILE"}},
		{"bad limits", []string{"-config", good, "-listen", free, "-max-body", "-1"}, 2, "", []string{"MaxBody"}},
	} {
		var stdout, stderr bytes.Buffer
		if status := exit(run(t.Context(), c.args, &stdout, &stderr), &stderr); status != c.status {
			t.Errorf("%s: status %d, want %d\n%s", c.name, status, c.status, stderr.String())
		}
		if c.stdout == "" && stdout.Len() > 0 || !strings.Contains(stdout.String(), c.stdout) {
			t.Errorf("%s: stdout has no %q:\n%s", c.name, c.stdout, stdout.String())
		}
		if c.stderr == nil && stderr.Len() > 0 {
			t.Errorf("%s: stderr:\n%s", c.name, stderr.String())
		}
		for _, s := range c.stderr {
			if !strings.Contains(stderr.String(), s) {
				t.Errorf("%s: stderr has no %q:\n%s", c.name, s, stderr.String())
			}
		}
	}
	// What is printed is a file that says the same.
	var first, again, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-config", good, "-check"}, &first, &stderr); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-config", file("printed.toml", first.String()), "-check"}, &again,
		&stderr); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first.String(), again.String()); d != "" {
		t.Error(d)
	}
}

// TestFlagsAsAFile: every flag reaches the file that stands for the flags.
func TestFlagsAsAFile(t *testing.T) {
	f := fleetFlags{
		strategy: precisecacheaware.Name, topic: "kv\"\\\n\u00e9", tokens: file.TokensFromTokenize,
		tokenizeTimeout: 250 * time.Millisecond,
		targets:         targets{{"http://a:1/x", 2.5}, {"http://b:1/7", 1}},
		events:          kvEvents{{"tcp://a:2", "tcp://a:3"}, {"tcp://b:2", ""}},
		scrape:          1500 * time.Millisecond, probe: time.Minute,
		failover: router.Options{Attempts: 5, FailOpen: true, Backoff: -1, MaxBackoff: time.Second, MaxRetryAfter: -1},
	}
	o := must(newService(discard)).options()
	got, err := config.Parse([]byte(f.file()), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, f.file())
	}
	r := got.Routes[0]
	for _, c := range []struct{ got, want any }{
		{got.MetricsScrape, file.MetricsScrape{Enabled: true, IntervalSecs: 1.5, TimeoutSecs: 2, Path: "/metrics"}},
		{got.HealthProbe.Enabled, true}, {got.HealthProbe.IntervalSecs, 60.0},
		{got.Providers[0].Name, "http://a:1/x"}, {got.Providers[0].APIBase, "http://a:1/x"},
		{got.Providers[1].Name, "http://b:1/7/"}, {got.Providers[1].APIBase, "http://b:1/7"},
		{*got.Providers[0].KVEvents, file.KVEvents{Endpoint: "tcp://a:2", ReplayEndpoint: "tcp://a:3", Topic: f.topic,
			MaxBlocks: 1_000_000, StaleSecs: 30}},
		{*got.Providers[1].KVEvents, file.KVEvents{Endpoint: "tcp://b:2", Topic: f.topic, MaxBlocks: 1_000_000,
			StaleSecs: 30}},
		{r.Model, "*"}, {r.Strategy, f.strategy}, {r.Failover, f.failover},
		{r.Targets, []file.RouteTarget{{Provider: "http://a:1/x", Weight: 2.5}, {Provider: "http://b:1/7/", Weight: 1}}},
		{r.TokenSource.Kind, file.TokensFromTokenize}, {r.TokenSource.TimeoutSecs, 0.25},
		{r.Settings[f.strategy].(*precisecacheaware.Config).Fallback, precisecacheaware.FallbackText},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	f = fleetFlags{strategy: leastwork.Name, targets: f.targets,
		leastWork: leastwork.Config{MissWeight: 7, ContextWeight: 0.5, Agree: 0.1}}
	if got, err = config.Parse([]byte(f.file()), o); err != nil {
		t.Fatal(err)
	}
	if c := got.Routes[0].Settings[leastwork.Name].(*leastwork.Config); c.MissWeight != 7 || c.ContextWeight != 0.5 ||
		c.Agree != 0.1 {
		t.Errorf("%+v", c)
	}
	if got.MetricsScrape.Enabled || got.HealthProbe.Enabled || got.Routes[0].TokenSource != nil || len(got.Warnings) > 0 {
		t.Errorf("more than the flags say: %+v", got)
	}
}

// TestFleetFlags: all flags that a file takes the place of are refused together with one, and
// are marked in the help.
func TestFleetFlags(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-h"}, &help); err == nil {
		t.Fatal("no help")
	}
	for name, value := range map[string]string{
		"strategy": "random", "miss-weight": "1", "context-weight": "1", "agree": "0", "target": "http://a",
		"kv-events": "tcp://a:1", "kv-topic": "x",
		"tokens": "memo", "tokenize-timeout": "1s", "attempts": "1", "fail-open": "true", "scrape": "1s", "probe": "1s",
		"allow-kv-transfer": "true", "refuse-member": "x",
		"queue": "true", "queue-requests": "1", "queue-prefill": "1",
		"queue-max": "1", "queue-max-wait": "1s", "queue-cached-first": "1s",
		"queue-tenant-header": "x", "queue-priority-header": "x",
		"engine-ca": "x", "engine-cert": "x", "engine-key": "x",
		"max-memory": "33554432",
		"share":      "nats://a:1", "share-peer": "a:1", "share-secret-env": "X", "share-name": "x",
	} {
		if _, err := parseFlags([]string{"-config", "x", "-" + name + "=" + value}, io.Discard); err == nil ||
			!strings.Contains(err.Error(), "-"+name) {
			t.Errorf("-%s beside -config: %v", name, err)
		}
		if !regexp.MustCompile(`(?m)^  -` + name + `\b.*\n\s+\* `).MatchString(help.String()) {
			t.Errorf("-%s is not marked in the help", name)
		}
	}
	if n := strings.Count(help.String(), "\t* "); n != 31 {
		t.Errorf("%d flags are marked", n)
	}
}

// TestReload: the file is read again when it changes and on SIGHUP; one that is wrong,
// or that denies a target, changes nothing and is logged.
func TestReload(t *testing.T) {
	signalled(t)
	leakCheck(t)
	e := newEcho(t)
	text := func(extra, models string) string {
		var b strings.Builder
		b.WriteString(extra + "[[providers]]\nname = \"p\"\napi_base = \"" + e.url + "\"\n")
		for m := range strings.FieldsSeq(models) {
			b.WriteString("[[routes]]\nmodel = \"" + m + "\"\ntargets = [{ provider = \"p\" }]\n")
		}
		return b.String()
	}
	for _, way := range []string{"-watch=20ms", "-watch=0"} {
		path := filepath.Join(t.TempDir(), "router.toml")
		place(t, path, text("", "a"))
		p := start(t, "-config", path, way)
		change := func(text string) {
			t.Helper()
			place(t, path, text)
			if way == "-watch=0" {
				hangUp(t)
			}
		}
		serves := func(model string) bool {
			resp, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"`+model+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			io.Copy(io.Discard, resp.Body)
			return resp.StatusCode == 200
		}
		if !serves("a") || serves("b") {
			t.Error("the first file is not in place")
		}
		change(text("", "a b"))
		eventually(t, "b is served", func() bool { return serves("b") })
		for _, c := range []struct{ text, why string }{
			{"this is no TOML", "1:6: expected"},
			{text("", "c") + "strategi = 1\n", `did you mean \"strategy\"`},
			{text("[egress]\nblock_loopback = true\n", "c"), "is loopback"},
		} {
			before := p.log.count("the configuration stays as it was")
			change(c.text)
			eventually(t, "the log says why", func() bool {
				return p.log.count("the configuration stays as it was") > before && p.log.count(c.why) > 0
			})
			if !serves("a") || !serves("b") || serves("c") {
				t.Errorf("after %q another file is in place", c.why)
			}
		}
		change(text("[egress]\nblock_private = true\n[health]\ncool_after = 1\n", "c"))
		eventually(t, "c is served", func() bool { return serves("c") })
		if serves("a") {
			t.Error("a is served still")
		}
		if n := p.log.count("the configuration stays as it was"); n != 3 {
			t.Errorf("told %d times:\n%s", n, p.log.String())
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}

// hangUp sends this process the signal to read its file again.
func hangUp(t *testing.T) {
	t.Helper()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
