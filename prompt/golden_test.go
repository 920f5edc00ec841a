package prompt_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/router/prompt"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

// digester sums up the prompts and replies of one source.
type digester struct {
	t   testing.TB
	n   int
	sum hash.Hash
}

func (d *digester) note(parts ...string) {
	d.n++
	for _, p := range parts {
		fmt.Fprintf(d.sum, "%d:%s", len(p), p)
	}
}

// request reads a body as that of each named API.
func (d *digester) request(body []byte, apis ...string) {
	for _, api := range apis {
		p, err := readers[api](body)
		d.note(api, p.Text, p.Model, p.Adapter, p.Salt, p.Session, fmt.Sprint(p.Tokens, err))
	}
}

func (d *digester) reply(body []byte) {
	var r prompt.Reply
	r.Write(body)
	d.note(r.Text(), fmt.Sprint(r.Usage()))
}

// sources are the texts that golden.txt holds, by name. A source that reads a recording from
// next to the checkout is skipped if there is none.
var sources = map[string]func(*digester){
	"replies": func(d *digester) {
		for _, c := range replies {
			d.request([]byte(c.first), c.api)
			d.request([]byte(c.next), c.api)
			for _, r := range c.reply {
				d.reply([]byte(r))
				for i := 0; i < len(r); i += 7 {
					d.reply([]byte(r[:i]))
				}
			}
		}
	},
	"seeds": func(d *digester) {
		files, err := filepath.Glob("testdata/fuzz/FuzzFrom*/*")
		if err != nil || len(files) == 0 {
			d.t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				d.t.Fatal(err)
			}
			d.request(b, "chat", "completion", "responses", "messages", "embeddings")
			for _, l := range strings.Split(string(b), "\n") {
				if s, ok := strings.CutPrefix(l, "[]byte("); ok {
					var body string
					if json.Unmarshal([]byte(strings.TrimSuffix(s, ")")), &body) == nil {
						d.request([]byte(body), "chat", "completion", "responses", "messages", "embeddings")
					}
				}
			}
		}
	},
	"vllm": func(d *digester) {
		for _, v := range []string{"v0.16.0", "v0.32.0"} {
			f, err := os.Open(filepath.Join("testdata/vllm", v, "multi_turn_chat.requests.jsonl"))
			if err != nil {
				d.t.Fatal(err)
			}
			defer f.Close()
			s := bufio.NewScanner(f)
			for s.Buffer(nil, 1<<20); s.Scan(); {
				var r struct{ Body json.RawMessage }
				if err := json.Unmarshal(s.Bytes(), &r); err != nil {
					d.t.Fatal(err)
				}
				if len(r.Body) > 0 {
					d.request(r.Body, "chat", "messages")
				}
			}
		}
	},
	"taubench": func(d *digester) {
		for n, traj := range trajectories(d.t) {
			if n%10 != 0 {
				continue
			}
			for i, m := range traj {
				if role(d.t, m) != "assistant" {
					continue
				}
				d.request(marshal(d.t, map[string]any{"model": "m", "messages": traj[:i]}), "chat", "messages")
				d.request(marshal(d.t, map[string]any{"model": "m", "input": traj[:i]}), "responses")
				d.reply(marshal(d.t, map[string]any{"choices": []any{map[string]any{"index": 0, "message": m}}}))
				d.reply(chatStream(d.t, m, 7))
			}
		}
	},
	"toolcalls": func(d *digester) {
		n := 0
		lines(d.t, "toolcalls/BFCL_v4_live_multiple.jsonl", func(line []byte) {
			if n++; n%4 != 0 {
				return
			}
			var v struct {
				Question [][]message
				Function []json.RawMessage
			}
			if err := json.Unmarshal(line, &v); err != nil {
				d.t.Fatal(err)
			}
			d.request(marshal(d.t, map[string]any{"messages": v.Question[0], "tools": v.Function}), "chat", "messages")
			d.request(marshal(d.t, map[string]any{"input": v.Question[0], "tools": v.Function}), "responses")
		})
		lines(d.t, "toolcalls/toolbench_example_calls.jsonl", func(line []byte) { d.request(line, "chat", "messages") })
	},
	"prompts": func(d *digester) {
		lines(d.t, "prompts/arena_hard_v2_question.jsonl", func(line []byte) {
			var v struct{ Prompt string }
			if err := json.Unmarshal(line, &v); err != nil {
				d.t.Fatal(err)
			}
			d.request(marshal(d.t, map[string]any{"prompt": v.Prompt, "cache_salt": "s"}), "completion")
			d.request(marshal(d.t, map[string]any{"input": []any{v.Prompt, "x"}}), "embeddings", "responses")
		})
	},
}

// TestGolden holds that no canonical text changes: what a fleet has learned of prompts is lost with
// a changed one.
func TestGolden(t *testing.T) {
	want := map[string]string{}
	const name = "testdata/golden.txt"
	if b, err := os.ReadFile(name); err == nil {
		for l := range strings.Lines(string(b)) {
			k, v, _ := strings.Cut(strings.TrimSpace(l), " ")
			want[k] = v
		}
	} else if !*update {
		t.Fatal(err)
	}
	for name, read := range sources {
		t.Run(name, func(t *testing.T) {
			d := &digester{t: t, sum: sha256.New()}
			read(d)
			got := fmt.Sprintf("%d %x", d.n, d.sum.Sum(nil))
			if *update {
				want[name] = got
			} else if got != want[name] {
				t.Errorf("got %s, want %s", got, want[name])
			}
		})
	}
	if *update {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for name := range sources {
			if want[name] == "" {
				t.Fatalf("no data for %s", name)
			}
		}
		writeSorted(f, want)
	}
}

func writeSorted(w io.Writer, m map[string]string) {
	for _, k := range sortedKeys(m) {
		fmt.Fprintln(w, k, m[k])
	}
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
