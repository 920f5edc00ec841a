package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/bench/sim"
)

// small is a trace that takes no time.
const small = `{"time": 0, "session": "a", "blocks": [1, 2, 3], "block_tokens": 512, "output_tokens": 20}
{"time": 0.1, "session": "b", "blocks": [1, 4], "block_tokens": 512, "output_tokens": 30}
{"time": 0.9, "session": "a", "blocks": [1, 2, 3, 5], "block_tokens": 512, "output_tokens": 20}
{"time": 1.5, "session": "b", "blocks": [1, 4, 6], "block_tokens": 512, "output_tokens": 20}
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func command(t *testing.T, args ...string) string {
	t.Helper()
	var out, log bytes.Buffer
	if err := run(context.Background(), args, &out, &log); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

func TestCommand(t *testing.T) {
	path := write(t, "own.jsonl", small)
	file := filepath.Join(t.TempDir(), "study.json")
	args := []string{"-workload", path, "-rate", "1,2", "-seeds", "3", "-policies", "all", "-gateways", "1,2",
		"-json", file}
	first := command(t, args...)
	for _, want := range []string{"own.jsonl 2 x, 2 gateways", "least_work", "round_robin", "lmetric",
		"ideal hit share 0.500"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in:\n%s", want, first)
		}
	}
	if d := cmp.Diff(first, command(t, args...)); d != "" {
		t.Errorf("the second time it says:\n%s", d)
	}
	s, err := readStudy(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * 2 * len(policies()); len(s.Cells) != want || len(s.Cells[0].Runs) != 3 || s.Replicas != 8 {
		t.Errorf("%d cells of %d runs, %d replicas; want %d", len(s.Cells), len(s.Cells[0].Runs), s.Replicas, want)
	}
	same := command(t, "-from", file, "-against", file)
	if !strings.Contains(same, "0.000 ±0.000  1.0000") {
		t.Errorf("a file against itself:\n%s", same)
	}
}

func TestPairedPolicies(t *testing.T) {
	out := command(t, "-workload", write(t, "own.jsonl", small), "-rate", "1", "-from", "least_work", "-against",
		"round_robin")
	if !strings.Contains(out, "Student's paired t-test") || !strings.Contains(out, "least_work  round_robin") {
		t.Error(out)
	}
}

func TestMistakes(t *testing.T) {
	path := write(t, "own.jsonl", small)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"-workload", []string{"-workload", "nowhere"}},
		{`no "fastest"`, []string{"-policies", "fastest"}},
		{"-rate", []string{"-workload", path, "-rate", "-1"}},
		{"-seeds", []string{"-workload", path, "-seeds", "x"}},
		{"-calibration", []string{"-workload", path, "-calibration", "toaster"}},
		{"-events", []string{"-workload", path, "-events", "explode 0"}},
		{"go together", []string{"-from", "x"}},
		{"no flag", []string{"least_work"}},
		{"Events", []string{"-workload", path, "-rate", "1", "-seeds", "1", "-events", "die 99 1s"}},
		{":1: ", []string{"-workload", write(t, "bad.jsonl", `{"time": 1, "input_tokens": -4}`)}},
	} {
		err := run(context.Background(), c.args, new(bytes.Buffer), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q in it", c.args, err, c.want)
		}
	}
	empty, _ := json.Marshal(sim.Study{Cells: []sim.Cell{{}}})
	if _, err := readStudy(write(t, "s.json", string(empty))); err == nil {
		t.Error("a cell without runs is no error")
	}
}

func TestEvents(t *testing.T) {
	got, err := parseEvents("die 0 100s 60s tell; die 1 5s; slow 1 50s 0.5; join 200s; join 1s 2;")
	if err != nil {
		t.Fatal(err)
	}
	const s = 1e9
	want := []sim.Event{
		{Kind: sim.Die, At: 100 * s, Down: 60 * s, Tell: true},
		{Kind: sim.Die, Replica: 1, At: 5 * s},
		{Kind: sim.Slow, Replica: 1, At: 50 * s, Speed: 0.5},
		{Kind: sim.Join, At: 200 * s},
		{Kind: sim.Join, At: 1 * s, Speed: 2},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"die", "die x 1s", "die 0 1s 2s 3s", "slow 0 1s", "join", "die 0 -1s"} {
		if _, err := parseEvents(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

func TestList(t *testing.T) {
	out := command(t, "-list")
	for _, want := range []string{"mooncake-conversation", "b2b-saas", "sglang_threshold", "8b-h100"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not listed", want)
		}
	}
}
