package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/vllmtest"
)

// program begins the commands that run the gateway.
const program = "warmroute "

// gateway builds the program that the commands run, which then starts at once.
func gateway(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "warmroute")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", out, ".")
	cmd.Dir, cmd.Env = "../cmd/warmroute", append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

// shell returns a script's command in the root of the module.
func shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = ".."
	return cmd
}

type never struct{}

func (never) Run(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func options() config.Options {
	return config.Options{
		Subscribe: func(config.Subscription) (config.Runner, error) { return never{}, nil },
		Share:     func(*file.Share) (router.Peers, *router.Holders, error) { return nil, nil, nil },
	}
}

// TestFiles: every file on a page is one that a gateway takes, without a warning.
func TestFiles(t *testing.T) {
	for _, name := range []string{"WARMROUTE_SHARE_SECRET", "NATS_USER", "NATS_PASSWORD"} {
		t.Setenv(name, "sixteen bytes or more")
	}
	for _, b := range blocks(t, "toml") {
		f, err := config.Parse([]byte(b.text), options())
		if err != nil {
			t.Errorf("%s:%d: %v", b.page, b.line, err)
			continue
		}
		for _, w := range f.Warnings {
			t.Errorf("%s:%d: warning: %v", b.page, b.line, w)
		}
		if _, err := config.Build(f, options()); err != nil {
			t.Errorf("%s:%d: %v", b.page, b.line, err)
		}
	}
}

func TestGateway(t *testing.T) {
	bin := gateway(t)
	for _, name := range []string{"WARMROUTE_SHARE_SECRET", "NATS_USER", "NATS_PASSWORD"} {
		t.Setenv(name, "sixteen bytes or more")
	}
	t.Run("Commands", func(t *testing.T) { testCommands(t, bin) })
	t.Run("Live", func(t *testing.T) { testLive(t, bin) })
}

// testCommands runs what needs no engine. A gateway that would serve is started
// with -check.
func testCommands(t *testing.T, bin string) {
	dir := t.TempDir()
	var configs []string
	for _, b := range blocks(t, "toml") {
		name := strings.TrimPrefix(b.mark, "file=")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		configs = append(configs, "-config "+name, "-config "+filepath.Join(dir, name))
	}
	for _, b := range blocks(t, "sh") {
		with := bin
		switch b.mark {
		case "gateway":
			with += " -check -strict"
		case "run":
			with += " -strict"
		default:
			continue
		}
		args, ok := strings.CutPrefix(b.text, program)
		if !ok {
			t.Errorf("%s:%d: does not begin with %s", b.page, b.line, program)
			continue
		}
		script := with + " " + strings.NewReplacer(configs...).Replace(args)
		cmd := shell(t.Context(), script)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s:%d: %s%v\n%s", b.page, b.line, b.text, err, stderr.String())
			continue
		}
		if _, err := config.Parse(out, options()); err != nil {
			t.Errorf("%s:%d: what it prints is no file: %v\n%s", b.page, b.line, err, out)
		}
	}
}

// publisher are the keys of --kv-events-config that engines know.
type publisher struct {
	Enable         bool   `json:"enable_kv_cache_events"`
	Publisher      string `json:"publisher"`
	Endpoint       string `json:"endpoint"`
	ReplayEndpoint string `json:"replay_endpoint"`
	BufferSteps    int    `json:"buffer_steps"`
	HWM            int    `json:"hwm"`
	MaxQueueSize   int    `json:"max_queue_size"`
	Topic          string `json:"topic"`
}

var (
	flagName = regexp.MustCompile(`--[a-z-]+`)
	events   = regexp.MustCompile(`--kv-events-config '([^']*)'`)
	transfer = regexp.MustCompile(`--kv-transfer-config '([^']*)'`)
)

// TestEngineFlags: an engine's command has flags that real engines were run with,
// and events that something can subscribe to.
func TestEngineFlags(t *testing.T) {
	known := map[string][]string{
		"vllm": append(flagName.FindAllString(read(t, "bench/live/fleet.go")+read(t, "bench/live/disagg.go"), -1),
			"--data-parallel-size"),
		// SGLang's own engines are not started by anything here.
		"sglang": {"--model-path", "--port", "--page-size", "--enable-metrics", "--kv-events-config"},
	}
	for _, b := range blocks(t, "sh") {
		if known[b.mark] == nil {
			continue
		}
		for _, f := range flagName.FindAllString(b.text, -1) {
			if !slices.Contains(known[b.mark], f) {
				t.Errorf("%s:%d: no engine was run with %s", b.page, b.line, f)
			}
		}
		m := events.FindStringSubmatch(b.text)
		if x := transfer.FindStringSubmatch(b.text); x != nil {
			var c struct {
				Connector string `json:"kv_connector"`
				Role      string `json:"kv_role"`
				Extra     any    `json:"kv_connector_extra_config"`
			}
			d := json.NewDecoder(strings.NewReader(x[1]))
			d.DisallowUnknownFields()
			if err := d.Decode(&c); err != nil || c.Role != "kv_both" ||
				!strings.Contains(read(t, "bench/live/disagg.go"), `"kv_connector": "`+c.Connector+`"`) {
				t.Errorf("%s:%d: no engine was run with %s: %v", b.page, b.line, x[1], err)
			}
			if m == nil {
				continue
			}
		}
		if m == nil {
			t.Errorf("%s:%d: no --kv-events-config", b.page, b.line)
			continue
		}
		var p publisher
		d := json.NewDecoder(strings.NewReader(m[1]))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			t.Errorf("%s:%d: %v", b.page, b.line, err)
		}
		if p.Publisher != "zmq" || p.Enable != (b.mark == "vllm") || !strings.HasPrefix(p.Endpoint, "tcp://*:") ||
			!strings.HasPrefix(p.ReplayEndpoint, "tcp://*:") {
			t.Errorf("%s:%d: nothing would come of %+v", b.page, b.line, p)
		}
	}
}

// testLive runs, for each page, the gateway that it starts last before a command for
// a live one, before two simulated replicas, and then that command.
func testLive(t *testing.T, bin string) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: there is no %s here", tool)
		}
	}
	var start block
	for _, b := range blocks(t, "sh") {
		if b.mark == "gateway" {
			start = b
		}
		if b.mark != "live" {
			continue
		}
		t.Run(fmt.Sprintf("%s:%d", b.page, b.line), func(t *testing.T) {
			if start.page != b.page {
				t.Fatalf("the page starts no gateway before it")
			}
			live(t, bin, start.text, b)
		})
	}
}

func live(t *testing.T, bin, start string, b block) {
	ctx, stop := context.WithCancel(t.Context())
	address := free(t)
	there := []string{"-listen :8080", "-listen " + address, "localhost:8080", address}
	var back []string
	for i := range 2 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-3, Events: &vllmtest.Events{}})
		t.Cleanup(s.Close)
		host := fmt.Sprintf("vllm-%d", i+1)
		there = append(there, "http://"+host+":8000", s.URL,
			"tcp://"+host+":5557", s.Events().Endpoint(), "tcp://"+host+":5657", s.Events().ReplayEndpoint())
		back = append(back, s.URL, "http://vllm-1:8000") // whichever it was
	}
	replace := strings.NewReplacer(there...)
	cmd := shell(ctx, "exec "+bin+" "+replace.Replace(strings.TrimPrefix(start, program)))
	cmd.WaitDelay = 20 * time.Second // after it was killed
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for {
		resp, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the gateway ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}

	out, err := shell(ctx, replace.Replace(b.text)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.ReplaceAll(strings.NewReplacer(back...).Replace(string(out)), "\r", "")
	if b.output == "" {
		if !json.Valid(out) {
			t.Errorf("it gives\n%s", got)
		}
		return
	}
	sorted := func(s string) []string {
		l := strings.Split(strings.TrimSpace(s), "\n")
		slices.Sort(l)
		return l
	}
	if d := cmp.Diff(sorted(b.output), sorted(got)); d != "" {
		t.Error(d)
	}
}

// free returns a loopback address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
