package engines

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/engines.md")

const root = "../.."

func all(t *testing.T) []Engine {
	t.Helper()
	es, err := All()
	if err != nil || len(es) < 5 {
		t.Fatalf("%d engines: %v", len(es), err)
	}
	return es
}

// known returns the facts of an area that speak of a name of an engine; engine "": of any.
func known(es []Engine, engine, area, name string) (fs []Fact) {
	for _, e := range es {
		for _, f := range e.Facts {
			if f.Area == area && (engine == "" || strings.HasSuffix(e.Name, engine)) && f.Covers(name) {
				fs = append(fs, f)
			}
		}
	}
	return fs
}

func TestPage(t *testing.T) {
	want, err := Page()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs", "engines.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, strings.ReplaceAll(string(got), "\r\n", "\n")); diff != "" {
		t.Errorf("docs/engines.md is not as facts.txt has it; run go test ./internal/engines -update\n%s", diff)
	}
}

// TestDescribed: each name in the engines' sources is read or ignored, and not both but for patterns.
func TestDescribed(t *testing.T) {
	raw, err := os.ReadFile("testdata/described.json")
	if err != nil {
		t.Fatal(err)
	}
	var described map[string]map[string][]string
	if err := json.Unmarshal(raw, &described); err != nil {
		t.Fatal(err)
	}
	es := all(t)
	seen := 0
	for engine, areas := range described {
		for area, names := range areas {
			for _, name := range names {
				seen++
				fs := known(es, engine, area, name)
				if len(fs) == 0 {
					t.Errorf("%s: %q, of its %s, is neither read nor ignored", engine, name, area)
				}
				exact := slices.DeleteFunc(fs, func(f Fact) bool { return !slices.Contains(f.Names, name) })
				if len(exact) > 1 {
					t.Errorf("%s: %q, of its %s, is in several lists", engine, name, area)
				}
			}
		}
	}
	if seen < 600 {
		t.Errorf("%d names are described", seen)
	}
}

// lines calls f for each line of a file, compressed or not.
func lines(t *testing.T, path string, f func(line []byte)) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r io.Reader = bytes.NewReader(raw)
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(r); err != nil {
			t.Fatal(err)
		}
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		f(sc.Bytes())
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestRecordedEvents: each member of an event that was recorded is in a list.
func TestRecordedEvents(t *testing.T) {
	es := all(t)
	missing, seen := map[string]bool{}, map[string]bool{}
	event := func(payload string) {
		b, err := hex.DecodeString(payload)
		if err != nil {
			t.Fatal(err)
		}
		v, rest, ok := value(b)
		batch, isArray := v.([]any)
		if !ok || len(rest) > 0 || !isArray || len(batch) < 2 {
			return // of the replay's end, or of another kind
		}
		events, _ := batch[1].([]any)
		for _, e := range events {
			members, _ := e.(map[string]any)
			for name := range members {
				seen[name] = true
				if len(known(es, "", "events", name)) == 0 {
					missing[name] = true
				}
			}
		}
	}
	files := 0
	dir := filepath.Join(root, "kvindex", "testdata", "recorded")
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.Contains(filepath.Base(path), ".jsonl") || strings.Contains(path, ".requests.") {
			return err
		}
		files++
		lines(t, path, func(line []byte) {
			var l struct {
				Frames []string
				Frame  string
			}
			if json.Unmarshal(line, &l) != nil {
				return
			}
			if n := len(l.Frames); n > 0 {
				event(l.Frames[n-1])
			}
			event(l.Frame)
		})
		return nil
	})
	if err != nil || files < 20 || len(seen) < 12 {
		t.Errorf("%d files, %d members: %v", files, len(seen), err)
	}
	for name := range missing {
		t.Errorf("%q was recorded, and is in no list", name)
	}
}

// TestRecordedPages: each metric on a recorded page is in a list.
func TestRecordedPages(t *testing.T) {
	es := all(t)
	family := regexp.MustCompile(`^# TYPE (\S+) `)
	suffix := regexp.MustCompile(`_(total|created|info)$`)
	pages := 0
	err := filepath.WalkDir(filepath.Join(root, "loadview", "enginepage", "testdata", "recorded"),
		func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".txt") {
				return err
			}
			pages++
			lines(t, path, func(line []byte) {
				if m := family.FindSubmatch(line); m != nil {
					name := string(m[1])
					if len(known(es, "", "metrics", name))+len(known(es, "", "metrics", suffix.ReplaceAllString(name, ""))) == 0 {
						t.Errorf("%s: %s is in no list", path, name)
					}
				}
			})
			return nil
		})
	if err != nil || pages == 0 {
		t.Errorf("%d pages: %v", pages, err)
	}
}

// source returns the Go files of a package, without its tests.
func source(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no files: %v", dir, err)
	}
	var b strings.Builder
	for _, n := range names {
		if strings.HasSuffix(n, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(raw)
	}
	return b.String()
}

// TestRead: the code has the names that are said to be read, and the decoder of events has none beyond.
func TestRead(t *testing.T) {
	code := map[string]string{
		"events": source(t, "kvindex"), "requests": source(t, "prompt"), "tokenize": source(t, "prompt/tokenize"),
		"metrics": source(t, "loadview/enginepage"),
	}
	for _, e := range all(t) {
		for _, f := range e.Facts {
			if free[f.Area] || e.Name == "Any engine" || !f.Read {
				continue
			}
			for _, name := range f.Names {
				short := name
				if f.Area == "metrics" {
					short = strings.TrimPrefix(strings.TrimPrefix(name, "vllm:"), "trtllm:")
				}
				found := regexp.MustCompile(`["` + "`" + `]` + regexp.QuoteMeta(short) + `(_total)?\b|json:"` + short)
				if !found.MatchString(code[f.Area]) && f.Text != "" && !hidden[e.Name+" "+name] {
					t.Errorf("%s: %q, of its %s, is read nowhere", e.Name, name, f.Area)
				}
			}
		}
	}
	cases := regexp.MustCompile(`(?m)^\tcase ((?:"[a-z_]+"(?:, )?)+):`)
	for _, m := range cases.FindAllStringSubmatch(source(t, "kvindex"), -1) {
		for _, name := range regexp.MustCompile(`[a-z_]+`).FindAllString(m[1], -1) {
			if len(known(all(t), "", "events", name)) == 0 && !words[name] {
				t.Errorf("%q is decoded, and is in no list", name)
			}
		}
	}
}

// hidden are names that are covered by the whole of a value.
var hidden = map[string]bool{"TensorRT-LLM hash": true, "TensorRT-LLM start_offset": true}

// words are values in the decoder that are no members' names.
var words = map[string]bool{
	"ts": true, "events": true, "data_parallel_rank": true, "full_attention": true, "mla_attention": true,
	"sink_full_attention": true, "sliding_window": true, "sliding_window_mla": true, "stored": true, "removed": true,
	"updated": true, "created": true, "all_cleared": true, "mm_hashes": true, "mm_identifiers": true, "lora_task_id": true,
}
