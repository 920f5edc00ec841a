package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/warmroute/router/config"
)

// deployed returns a file of deploy.
func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// runs fails if the gateway would not take args. Files are not read.
func runs(t *testing.T, from string, args []string) {
	t.Helper()
	var help bytes.Buffer
	if _, err := parseFlags(args, &help); err != nil {
		t.Errorf("%s: %q: %v", from, args, err)
	}
}

// node is a part of a YAML document.
type node = map[string]any

// documents returns the documents of a YAML file.
func documents(t *testing.T, text string) []node {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	var all []node
	for {
		var n node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
}

// at returns the value at a path of keys, nil if there is none.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			n, _ := v.(node)
			v = n[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func texts(v any) []string {
	l, _ := v.([]any)
	var all []string
	for _, e := range l {
		s, _ := e.(string)
		all = append(all, s)
	}
	return all
}

// TestContainer: the image is built of a program that is there, and begins with flags that it has.
func TestContainer(t *testing.T) {
	text := deployed(t, "Containerfile")
	m := regexp.MustCompile(`(?m)^CMD (.*)$`).FindStringSubmatch(text)
	var args []string
	if m == nil || json.Unmarshal([]byte(m[1]), &args) != nil {
		t.Fatalf("no CMD in\n%s", text)
	}
	runs(t, "Containerfile", args)
	for _, want := range []string{"go -C cmd/warmroute build", "\nUSER 65532", "\nENTRYPOINT [\"/warmroute\"]\n",
		":nonroot\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	compose := documents(t, deployed(t, "compose.yaml"))[0]
	args = texts(at(compose, "services", "warmroute", "command"))
	runs(t, "compose.yaml", args)
	for _, a := range args {
		host, ok := strings.CutPrefix(a, "http://")
		if ok && at(compose, "services", strings.TrimSuffix(host, ":8000")) == nil {
			t.Errorf("compose.yaml has no service for %s", a)
		}
	}
	if cf := at(compose, "services", "warmroute", "build", "dockerfile"); cf != "deploy/Containerfile" {
		t.Errorf("compose.yaml builds %v", cf)
	}
}

// TestUnit: the unit's commands have flags of the gateway; systemd takes it, if that is here.
func TestUnit(t *testing.T) {
	text := deployed(t, "warmroute.service")
	commands := regexp.MustCompile(`(?m)^ExecStart(?:Pre)?=/usr/local/bin/warmroute (.*)$`).FindAllStringSubmatch(text, -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands in\n%s", len(commands), text)
	}
	for _, c := range commands {
		name, args, err := commandOf(strings.Fields(c[1]))
		if err != nil || name != "serve" && name != "check" {
			t.Errorf("%s: %v", c[1], err)
		}
		runs(t, "warmroute.service", args)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("the rest is skipped: there is no systemd-analyze here")
	}
	path := filepath.Join(t.TempDir(), "warmroute.service")
	// The program need not be installed here.
	place(t, path, strings.ReplaceAll(text, "/usr/local/bin/warmroute", "/bin/true"))
	if out, err := exec.Command(analyze, "verify", path).CombinedOutput(); err != nil &&
		strings.Contains(string(out), "warmroute.service") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestManifests: the gateway takes the file and the flags, and both fit the rest. The manifests' own form, and what
// they refer to in each other, is checked by the types of Kubernetes, in tools/deploy.
func TestManifests(t *testing.T) {
	t.Setenv("WARMROUTE_SHARE_SECRET", "sixteen bytes or more")
	kinds := make(map[string]node)
	for _, d := range documents(t, deployed(t, "kubernetes/warmroute.yaml")) {
		kind, _ := d["kind"].(string)
		name, _ := at(d, "metadata", "name").(string)
		kinds[kind+"/"+name] = d
	}
	file, _ := at(kinds["ConfigMap/warmroute"], "data", "router.toml").(string)
	f, err := config.Parse([]byte(file), must(newService(discard)).options())
	if err != nil || len(f.Warnings) > 0 || f.Share.Kind() != "embedded" {
		t.Fatalf("%v, %v\n%s", err, f, file)
	}
	pod := at(kinds["Deployment/warmroute"], "spec", "template", "spec")
	c := at(pod, "containers", 0)
	runs(t, "warmroute.yaml", texts(at(c, "args")))
	ports := make(map[any]any)
	for i := 0; at(c, "ports", i) != nil; i++ {
		ports[at(c, "ports", i, "name")] = at(c, "ports", i, "containerPort")
	}
	for _, probe := range []string{"readinessProbe", "livenessProbe"} {
		if p := at(c, probe, "httpGet", "port"); ports[p] != 8080 {
			t.Errorf("%s: port %v", probe, p)
		}
	}
	if f.Share.Peers[0] != "warmroute-peers:6222" || !strings.HasSuffix(f.Share.Bus[0], ":6222") || ports["nats"] != 6222 {
		t.Errorf("the gateways' port: %v %v %v", f.Share.Peers, f.Share.Bus, ports)
	}
	if at(pod, "containers", 0, "env", 0, "name") != f.Share.SecretEnv {
		t.Errorf("%v", at(pod, "containers", 0, "env"))
	}
	monitor := documents(t, deployed(t, "kubernetes/servicemonitor.yaml"))[0]
	if at(monitor, "spec", "endpoints", 0, "path") != metricsPath ||
		at(monitor, "spec", "endpoints", 0, "port") != at(kinds["Service/warmroute"], "spec", "ports", 0, "name") {
		t.Errorf("%v", monitor)
	}
	args := texts(at(c, "args"))
	if i := slices.Index(args, "-config"); i < 0 || args[i+1] != "/etc/warmroute/router.toml" ||
		at(c, "volumeMounts", 0, "mountPath") != "/etc/warmroute" {
		t.Errorf("%q", args)
	}
}
