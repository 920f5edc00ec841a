package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/vllmtest"
)

// metric returns the value of a sample on the gateway's page of metrics, -1 if it is not there.
func (p *program) metric(t *testing.T, name string) float64 {
	t.Helper()
	resp, err := http.Get(p.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(readAll(t, resp.Body))
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ask sends a prompt, and returns the target and the cached share that the gateway reports.
func (p *program) ask(t *testing.T, text string) (target string, cached float64) {
	t.Helper()
	resp, err := http.Post(p.url+"/v1/completions", "application/json",
		strings.NewReader(fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":2}`, text)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body := readAll(t, resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	cached, err = strconv.ParseFloat(resp.Header.Get(headerCached), 64)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Get(headerTarget), cached
}

// TestShared: of gateways with a server each, one knows what another sent, by flags and by a file; and goes on alone.
func TestShared(t *testing.T) {
	signalled(t)
	t.Setenv("WARMROUTE_SHARE_SECRET", "a secret of this fleet")
	var engines, providers, offers, targets []string
	for i := range 4 {
		s := vllmtest.NewServer(vllmtest.Config{Model: "m", TimeScale: 1e-6, ReplyTokens: 2})
		t.Cleanup(s.Close)
		engines = append(engines, "-target", s.URL)
		name := strconv.Quote(s.URL)
		providers = append(providers, fmt.Sprintf("[[providers]]\nname = %s\napi_base = %s\n", name, name))
		offers = append(offers, fmt.Sprintf("[[routes.targets]]\nprovider = %s\n", name))
		targets = append(targets, strconv.Itoa(i))
	}
	var at [2]string
	for i := range at {
		var err error
		if at[i], err = ports.Free(); err != nil {
			t.Fatal(err)
		}
	}
	a := start(t, append(engines, "-share", "embedded://"+at[0], "-share-peer", at[1], "-share-name", "a")...)
	path := filepath.Join(t.TempDir(), "router.toml")
	err := os.WriteFile(path, []byte(fmt.Sprintf("[share]\nbus = [\"embedded://%s\"]\npeers = [%q]\n"+
		"secret_env = \"WARMROUTE_SHARE_SECRET\"\nname = \"b\"\n%s[[routes]]\nmodel = \"*\"\n%s",
		at[1], at[0], strings.Join(providers, ""), strings.Join(offers, ""))), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, "-config", path)
	for _, p := range []*program{a, b} {
		eventually(t, "the other gateway is heard", func() bool {
			return p.metric(t, `warmroute_share_connected{share="default"}`) == 1 && p.metric(t, `warmroute_share_peers_counted{share="default"}`) == 1 &&
				p.metric(t, `warmroute_share_joined{share="default"}`) == 1
		})
	}
	for i := range 2 * len(targets) {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		text := strings.Repeat(fmt.Sprintf("%d document ", i), 1000)
		before := to.metric(t, `warmroute_share_marks{share="default"}`)
		first, cached := from.ask(t, text)
		if cached != 0 {
			t.Errorf("%d: a new prompt is cached: %v", i, cached)
		}
		eventually(t, "the fingerprints have come", func() bool { return to.metric(t, `warmroute_share_marks{share="default"}`) >= before+9 })
		if second, cached := to.ask(t, text); second != first || cached < 0.8 {
			t.Errorf("%d: the other gateway sent it to %s, not %s, as %v cached", i, second, first, cached)
		}
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other gateway is gone", func() bool { return b.metric(t, `warmroute_share_peers{share="default"}`) == 0 })
	if _, cached := b.ask(t, strings.Repeat("0 document ", 1000)); cached < 0.8 {
		t.Errorf("alone it knows %v of a prompt", cached)
	}
	if log := b.log.String(); strings.Contains(log, "a secret of this fleet") {
		t.Error("the secret is in the log")
	}
}

// TestShareFlags: wrong flags are named.
func TestShareFlags(t *testing.T) {
	t.Setenv("SHORT", "short")
	t.Setenv("LONG", "long enough for a fleet")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-share-peer", "a:1"}, "-share-peer and -share-name need -share"},
		{[]string{"-share", "nats://a:1"}, "share.secret_env"},
		{[]string{"-share", "nats://a:1", "-share-secret-env", "SHORT"}, "fewer than 16 bytes"},
		{[]string{"-share", "amqp://a:1", "-share-secret-env", "LONG"}, "share.bus[0]"},
		{[]string{"-share", "nats://a:1", "-share-peer", "b:1", "-share-secret-env", "LONG"}, "share.peers"},
	} {
		var out logged
		err := run(t.Context(), append([]string{"-target", "http://a:1"}, c.args...), &out, &out)
		if err == nil || !strings.Contains(err.Error(), c.says) || exit(err, &out) != 2 {
			t.Errorf("%q: %v", c.args, err)
		}
	}
	// A file of certificates that is not there.
	path := filepath.Join(t.TempDir(), "router.toml")
	place(t, path, "[share]\nbus = [\"tls://a:1\"]\nsecret_env = \"LONG\"\nca_file = \"none.pem\"\n[[providers]]\n"+
		"name = \"a\"\napi_base = \"http://a:1\"\n[[routes]]\nmodel = \"*\"\n[[routes.targets]]\nprovider = \"a\"\n")
	var out logged
	err := run(t.Context(), []string{"-config", path}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "the authorities: ") || exit(err, &out) != 2 {
		t.Error(err)
	}
}
