//go:build promtool

package prometheus_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// These need prometheus and promtool on PATH, as Debian's package prometheus has them: make metrics.

// TestPromtool: Prometheus' own tool has nothing against the page and the rules.
func TestPromtool(t *testing.T) {
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = strings.NewReader(serve(t, everything(t)).text())
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("check metrics: %v\n%s", err, out)
	}
	rules := exec.CommandContext(t.Context(), "promtool", "check", "rules", "--lint-fatal", "alerts.yaml")
	out, err := rules.CombinedOutput()
	if err != nil {
		t.Errorf("check rules: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	out, err = exec.CommandContext(t.Context(), "promtool", "test", "rules", "alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("test rules: %v\n%s", err, out)
	}
}

// TestRealPrometheus: a Prometheus scrapes the page, evaluates the rules, and answers every expression of the
// dashboard.
func TestRealPrometheus(t *testing.T) {
	p := startPrometheus(t, serve(t, everything(t)).url)
	var exprs []string
	data, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	grafana := strings.NewReplacer("$__rate_interval", "1m", "$route", ".*", "$fleet", ".*")
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			exprs = append(exprs, grafana.Replace(q.Expr))
		}
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: it does not come", what)
			}
		}
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	query := func(expr string) bool {
		answer.Data.Result = nil
		p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
		return answer.Status == "success" && len(answer.Data.Result) > 0
	}
	until("two scrapes", func() bool { return query("rate(warmroute_picks_total[1m])") })
	for _, expr := range exprs {
		if !query(expr) {
			t.Errorf("%s: %q, %d series", expr, answer.Error, len(answer.Data.Result))
		}
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	until("the rules", func() bool {
		p.get(t, "/api/v1/rules", &rules)
		n := 0
		for _, g := range rules.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health != "ok" {
					return false
				}
				n++
			}
		}
		return n > 10
	})
	t.Logf("%d expressions", len(exprs))
}

type server struct{ url string }

func (s *server) get(t *testing.T, path string, into any) {
	t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// startPrometheus starts a Prometheus that scrapes one page.
func startPrometheus(t *testing.T, page string) *server {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	u := must(url.Parse(page))
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs:\n- job_name: warmroute\n  metrics_path: %q\n  static_configs: [{targets: [%q]}]\n",
		rules, "/"+strings.TrimPrefix(u.Path, "/"), u.Host)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	log := must(os.Create(filepath.Join(dir, "log")))
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
	})
	s := &server{"http://" + address}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if res, err := http.Get(s.url + "/-/ready"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("Prometheus is not ready:\n%s", text)
		}
	}
}
