package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/vllmtest"
)

// TestTypos: a wrong command or flag gives one line, which has the right one.
func TestTypos(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-traget", "http://a:1"}, "warmroute: there is no flag -traget; did you mean -target?\n"},
		{[]string{"--no-such-thing-at-all"}, "warmroute: there is no flag -no-such-thing-at-all; -h lists them\n"},
		{[]string{"srve"}, "warmroute: there is no command \"srve\"; did you mean serve?\n"},
		{[]string{"zzzzzzzzz"}, "warmroute: there is no command \"zzzzzzzzz\"; there are check, completion, demo, "},
		{[]string{"-attempts", "x"}, "warmroute: invalid value \"x\" for flag -attempts: parse error\n"},
		{[]string{"fake", "-n", "0"}, "warmroute: -n is not 1 to 256\n"},
		{[]string{"fake", "-listen", "x"}, "warmroute: -listen \"x\" is not host:port"},
		{[]string{"fake", "-modle", "x"}, "warmroute: there is no flag -modle; did you mean -model?\n"},
		{[]string{"explain", "a", "b"}, "warmroute: unexpected argument \"b\"\n"},
		{[]string{"completion"}, "warmroute: completion needs the name of one shell"},
		{[]string{"completion", "tcsh"}, "warmroute: there is no completion for \"tcsh\""},
	} {
		var stdout, stderr bytes.Buffer
		status := exit(run(t.Context(), c.args, &stdout, &stderr), &stderr)
		if got := stderr.String(); status != 2 || !strings.HasPrefix(got, c.says) || strings.Count(got, "\n") != 1 {
			t.Errorf("%q: %d, %q", c.args, status, got)
		}
	}
}

// TestHelp: every flag is in one group of the help, and every command has a help of its own.
func TestHelp(t *testing.T) {
	fs, _ := newFlags()
	in := make(map[string]int)
	for _, g := range groups {
		for _, name := range g.flags {
			if in[name]++; fs.Lookup(name) == nil || in[name] > 1 {
				t.Errorf("the group %s has the flag -%s, which is none, or is in another", g.title, name)
			}
		}
	}
	fs.VisitAll(func(f *flag.Flag) {
		if in[f.Name] == 0 {
			t.Errorf("-%s is in no group", f.Name)
		}
	})
	for _, name := range append(slices.Clone(commands), "") {
		if name == "version" {
			continue
		}
		args := []string{name, "-h"}
		if name == "" {
			args = args[1:]
		}
		var stderr bytes.Buffer
		if status := exit(run(t.Context(), args, io.Discard, &stderr), &stderr); status != 0 ||
			!strings.HasPrefix(stderr.String(), "Usage: warmroute") || !strings.Contains(stderr.String(), "Example:") {
			t.Errorf("%s -h: %d, %.200s", name, status, stderr.String())
		}
	}
	for _, args := range [][]string{{"version"}, {"-version"}} {
		var stdout bytes.Buffer
		if err := run(t.Context(), args, &stdout, io.Discard); err != nil ||
			!strings.HasPrefix(stdout.String(), "warmroute ") {
			t.Errorf("%q: %q, %v", args, stdout.String(), err)
		}
	}
}

// TestFakeAndExplain: simulated replicas, a gateway in front of them, and its ranking for a body.
func TestFakeAndExplain(t *testing.T) {
	signalled(t)
	ctx, stop := context.WithCancel(context.Background())
	var out logged
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"fake", "-n", "3", "-listen", "127.0.0.1:0", "-speed", "1e6"}, &out, io.Discard)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	line := regexp.MustCompile(`(?m)^  warmroute -debug 127.0.0.1:6060(.*)$`)
	eventually(t, "the replicas run", func() bool { return line.MatchString(out.String()) })
	targets := strings.Fields(line.FindStringSubmatch(out.String())[1])
	if len(targets) != 6 || strings.Count(out.String(), "KV events tcp://") != 3 {
		t.Fatalf("it says %s", out.String())
	}
	debug, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, append([]string{"-debug", debug}, targets...)...)
	text := strings.Repeat("a long document ", 200)
	first, _ := p.ask(t, text)

	body := filepath.Join(t.TempDir(), "body.json")
	place(t, body, fmt.Sprintf(`{"model":"m","prompt":%q}`, text))
	var ranking, stderr bytes.Buffer
	args := []string{"explain", "-debug", "http://" + debug, "-path", "/v1/completions", body}
	if err := run(t.Context(), args, &ranking, &stderr); err != nil {
		t.Fatal(err, stderr.String())
	}
	if !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(first)+` \(picked\) +ready +3200 of 3200 bytes`).MatchString(
		ranking.String()) || !strings.Contains(ranking.String(), "for m, 3 targets") {
		t.Errorf("%s has it, and explain says\n%s", first, ranking.String())
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"explain", "-debug", "http://" + debug, "-route", "none", body}, "no such route"},
		{[]string{"explain", "-debug", p.url, body}, "The path does not exist here"},
		{[]string{"explain", "-debug", "http://127.0.0.1:1", body}, "does not answer"},
		{[]string{"explain", body + ".none"}, "no such file"},
	} {
		if err := run(t.Context(), c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}

// TestCompletion: bash takes its completion, and completes a flag and a command.
func TestCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("skipped: there is no bash here")
	}
	var script bytes.Buffer
	if err := run(t.Context(), []string{"completion", "bash"}, &script, io.Discard); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]string{"-tar": "-target", "expl": "explain"} {
		cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c", script.String()+
			"\nCOMP_WORDS=(warmroute "+word+"); COMP_CWORD=1; _warmroute; echo ${COMPREPLY[*]}")
		got, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %q, %v", word, got, err)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		script.Reset()
		if err := run(t.Context(), []string{"completion", shell}, &script, io.Discard); err != nil ||
			!strings.Contains(script.String(), "target") || strings.Contains(script.String(), "%!") {
			t.Errorf("%s: %v\n%s", shell, err, script.String())
		}
	}
}

// TestInterrupt: an interrupt ends an idle gateway without the delay for balancers, SIGTERM does not.
func TestInterrupt(t *testing.T) {
	s := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6})
	t.Cleanup(s.Close)
	for _, c := range []struct {
		cause error
		drain string
	}{{errInterrupt, "1h"}, {errors.New("terminated"), "1ms"}} {
		ctx, cancel := context.WithCancelCause(context.Background())
		var log logged
		ended := make(chan error, 1)
		go func() {
			args := []string{"-listen", "127.0.0.1:0", "-drain-delay", c.drain, "-target", s.URL}
			ended <- run(ctx, args, io.Discard, &log)
		}()
		eventually(t, "it listens", func() bool { return listening.MatchString(log.String()) })
		cancel(c.cause)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%v: %v", c.cause, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v: it goes on", c.cause)
		}
	}
}

// TestStartSays: a target that does not answer has a line in the log at the start, one that does has none, and a
// change of its state has one.
func TestStartSays(t *testing.T) {
	good := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6})
	t.Cleanup(good.Close)
	dead, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "-target", good.URL, "-target", "http://"+dead, "-strategy", "round_robin")
	eventually(t, "the dead target is named", func() bool {
		return strings.Contains(p.log.String(), `msg="a target does not answer" target=http://`+dead)
	})
	if strings.Contains(p.log.String(), `does not answer" target=`+good.URL) {
		t.Error("the good target is named")
	}
	for path, want := range map[string]int{"/livez": 200, "/healthz": 200, "/readyz": 200} {
		resp, err := http.Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	alone := start(t, "-target", "http://"+dead)
	eventually(t, "a gateway without a ready target says so", func() bool {
		resp, err := http.Post(alone.url+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"x","max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		resp, err = http.Get(alone.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode == 503 && strings.Contains(readAll(t, resp.Body), "no target is ready")
	})
	eventually(t, "its cool-down is named", func() bool {
		resp, err := http.Post(p.url+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"x","max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return strings.Contains(p.log.String(), "target=http://"+dead+" was=ready is=cooling")
	})
}

// TestProgram: the program that users install is built, and says its name and version.
func TestProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: it links the whole program")
	}
	bin := filepath.Join(t.TempDir(), "warmroute")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(bin, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "warmroute ") {
		t.Errorf("%q, %v", out, err)
	}
	out, err = exec.Command(bin, "-nothing-of-that").CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 2 || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%q, %v", out, err)
	}
}
