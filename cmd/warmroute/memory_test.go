package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/warmroute/router/config"
	"github.com/warmroute/router/membudget"
)

// contents returns the contents of one of g's pages.
func (g *rig) contents(t *testing.T, path string) string {
	t.Helper()
	resp, err := g.http.Get(g.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// account returns the sizes of one of g's accounts.
func (g *rig) account(t *testing.T, name string) membudget.AccountStats {
	t.Helper()
	for _, a := range g.service.memory.Stats().Accounts {
		if a.Name == name {
			return a
		}
	}
	t.Fatal("no account", name)
	return membudget.AccountStats{}
}

// TestMemoryShed: a request for which an account has no memory is refused, with the account's name: 503 if it may come
// again, 413 if it can never fit. What requests had is given back.
func TestMemoryShed(t *testing.T) {
	entered, leave := make(chan bool, 10), make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		<-leave
		io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}]}`)
	})
	const least = 16 << 20
	for name, c := range map[string]struct {
		shares string
		size   int // of a body's text
		status int
	}{
		"bodies":  {"bodies = 0.1\nprompts = 0.5", 1 << 20, 503},
		"prompts": {"bodies = 0.45\nprompts = 0.15", 1 << 20, 503},
		"replies": {"replies = 0.003", 10, 503},
		"bodies ": {"bodies = 0.1\nprompts = 0.5", 3 << 20, 413},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, rigConfig{settings: "[memory_shares]\n" + c.shares + "\n", memory: least}, up)
			body := strings.Replace(chatBody, "hello", strings.Repeat("x", c.size), 1)
			answers, sent := make(chan *http.Response), 0
			for first := true; first; {
				go func() { answers <- g.post(t, "/v1/chat/completions", body) }()
				sent++
				select {
				case <-entered:
				case r := <-answers:
					first = false
					account := strings.TrimSpace(name)
					text, _ := io.ReadAll(r.Body)
					if r.StatusCode != c.status || !strings.Contains(string(text), "memory for "+account) ||
						(r.Header.Get("Retry-After") == "1") != (c.status == 503) {
						t.Errorf("request %d: %s %s %v", sent, r.Status, text, r.Header)
					}
					if page := g.contents(t, metricsPath); !strings.Contains(page, `warmroute_memory_shed_total{account="`+account+
						`",memory="default"} 1`) {
						t.Error(page)
					}
					if a := g.account(t, account); a.Shed == 0 || a.Used > a.Limit {
						t.Errorf("%+v", a)
					}
				}
			}
			for range sent - 1 {
				leave <- true
				if r := <-answers; r.StatusCode != 200 {
					t.Error(r.Status)
				}
			}
			eventually(t, "all is given back", func() bool { return g.service.memory.Stats().Used == 0 })
		})
	}
}

// TestMaxMemory: the limit and the shares come from the flags or the file, and change with it.
func TestMaxMemory(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) {})
	g := newRig(t, rigConfig{}, up)
	if s := g.service.memory.Stats(); s.Limit != membudget.DefaultLimit || g.account(t, "replies").Limit != s.Limit/4 {
		t.Errorf("%+v", s)
	}
	g = newRig(t, rigConfig{memory: 100 << 20}, up)
	if s := g.service.memory.Stats(); s.Limit != 100<<20 {
		t.Errorf("%+v", s)
	}
	file := strings.NewReplacer("max_memory = 104857600", "max_memory = 209715200", "bodies = 0.35", "bodies = 0.1").
		Replace(g.service.gateway.File().Effective())
	f, err := config.Parse([]byte(file), g.options)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.service.gateway.Reload(f); err != nil {
		t.Fatal(err)
	}
	if err := g.service.update(); err != nil {
		t.Fatal(err)
	}
	if s := g.service.memory.Stats(); s.Limit != 200<<20 || g.account(t, "bodies").Limit != 20<<20 {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct{ flags, want string }{
		{"-max-memory -1", "negative"}, {"-max-memory 1000", "max_memory: is 1000"},
	} {
		err := run(t.Context(), append(strings.Fields(c.flags), "-check", "-target", "http://a:1"), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.flags, err)
		}
	}
	for _, c := range []struct{ file, want string }{
		{"[memory_shares]\nbodies = 0.9\n", "memory_shares: the shares add up to 1.55"},
		{"[memory_shares]\nevents = 0\n", "memory_shares.events: is 0"},
		{"max_memory = 10\n", "max_memory: is 10; it must be 16777216 to"},
	} {
		if _, err := config.Parse([]byte(c.file+file[strings.Index(file, "[egress]"):]), g.options); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.file, err)
		}
	}
}
