package warmroute

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"go.uber.org/goleak"

	"github.com/warmroute/router/vllmtest"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caddy")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	caddy.DefaultStorage.Path = dir
	caddy.RegisterModule(new(source))
	before := goleak.IgnoreCurrent() // those of the packages of Caddy
	code := m.Run()
	built.remove()
	os.RemoveAll(dir)
	if err := goleak.Find(before,
		// Caddy's own, which do not end with it: the one that lets dynamic upstreams
		// go, and one that ends at its next look at a file.
		goleak.IgnoreAnyFunction(
			"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy.(*Upstream).fillDynamicHost.func1.1"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),
	); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// host is a Caddy, in this process or of its own.
type host struct {
	dir    string
	client *http.Client // of the site
	admin  *http.Client
}

// sockets are paths, so that no port can be somebody else's.
func newHost(t testing.TB) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "caddy") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: dir}
	dial := func(name string) *http.Client {
		tr := &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, name))
			},
			MaxIdleConnsPerHost: 256,
		}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	h.client, h.admin = dial("site"), dial("admin")
	t.Cleanup(func() { os.RemoveAll(dir) })
	return h
}

// caddyfile is a whole file of a site with these lines in it.
func (h *host) caddyfile(site string) string {
	return fmt.Sprintf("{\n\tadmin unix/%s/admin\n\tpersist_config off\n\tauto_https off\n\tgrace_period 5s\n\tlog "+
		"{\n\t\toutput discard\n\t}\n}\nhttp:// {\n\tbind unix/%s/site\n%s\n}\n", h.dir, h.dir, site)
}

// start runs Caddy in this process.
func start(t testing.TB, site string) *host {
	t.Helper()
	h := newHost(t)
	config, err := adapt(h.caddyfile(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Stop alone leaves the admin endpoint.
		if err := caddy.Load([]byte(`{"admin":{"disabled":true,"config":{"persist":false}}}`), true); err != nil {
			t.Error(err)
		}
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		if s := status(); len(s) != 0 {
			t.Errorf("state is left: %+v", s)
		}
	})
	return h
}

func adapt(file string) ([]byte, error) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), map[string]any{"filename": "Caddyfile"})
	return config, err
}

// reload replaces the site.
func (h *host) reload(t testing.TB, site string) {
	t.Helper()
	resp, err := h.admin.Post("http://localhost/load", "text/caddyfile", strings.NewReader(h.caddyfile(site)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("reload: %d %s", resp.StatusCode, b)
	}
}

// status is what the admin endpoint says of the one strategy that is there.
func (h *host) status(t testing.TB) Status {
	t.Helper()
	resp, err := h.admin.Get("http://localhost/warmroute/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s []Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || len(s) != 1 {
		t.Fatalf("status: %v %+v", err, s)
	}
	return s[0]
}

// idle waits until every count is 0 and every attempt has ended.
func (h *host) idle(t testing.TB) Status {
	t.Helper()
	var s Status
	eventually(t, "idle", func() bool {
		s = h.status(t)
		for _, n := range s.InFlight {
			if n != 0 {
				return false
			}
		}
		return s.Sent == s.Finished+s.Failed+s.Canceled
	})
	return s
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// fleetOf starts n replicas and returns their addresses, with spaces between.
func fleetOf(t testing.TB, n int, cfg vllmtest.Config) ([]*vllmtest.Server, string) {
	t.Helper()
	var rs []*vllmtest.Server
	var addrs []string
	for range n {
		s := vllmtest.NewServer(cfg)
		t.Cleanup(s.Close)
		rs, addrs = append(rs, s), append(addrs, s.Addr())
	}
	return rs, strings.Join(addrs, " ")
}

// site is the reverse_proxy of the Caddyfile in this folder, before these
// replicas, with more lines at its end.
func site(t testing.TB, addrs string, more ...string) string {
	t.Helper()
	b, err := os.ReadFile("Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	_, s, ok := strings.Cut(string(b), ":8080 {\n")
	const them = "10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000 10.0.0.4:8000"
	end := strings.LastIndex(s, "\t}\n}")
	if !ok || end < 0 || !strings.Contains(s, them) {
		t.Fatalf("the Caddyfile is another one: %s", s)
	}
	return strings.Replace(s[:end], them, addrs, 1) + "\t\t" + strings.Join(more, "\n\t\t") + "\n\t}"
}

// message is one of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func body(stream bool, tokens int, ms ...message) []byte {
	b, err := json.Marshal(map[string]any{"messages": ms, "stream": stream, "max_tokens": tokens, "min_tokens": tokens})
	if err != nil {
		panic(err)
	}
	return b
}

// answer is a reply that came whole, or with err how it broke off.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// ask sends a chat; first, if not nil, is called when the reply begins.
func (h *host) ask(ctx context.Context, b []byte, first func()) answer {
	return h.post(ctx, "/v1/chat/completions", b, first)
}

func (h *host) post(ctx context.Context, path string, b []byte, first func()) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, bytes.NewReader(b))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	if first != nil {
		first()
	}
	all, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(all), err: err}
}
