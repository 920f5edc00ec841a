package kvindex

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	router "github.com/warmroute/router"
)

// zipped decodes a compressed file of one JSON object a line.
func zipped[T any](t *testing.T, path string) []T {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return decodeLines[T](t, path, z)
}

// TestSpeculation replays what vLLM 0.32.0 sent with speculation. With EAGLE it reuses one block less
// than it holds: three reports teach that.
func TestSpeculation(t *testing.T) {
	for name, want := range map[string]struct{ right, of, blocks int }{
		"eagle":      {58, 61, 1}, // the first three reports
		"eagle, set": {61, 61, 1},
		"ngram":      {61, 61, 0},
	} {
		t.Run(name, func(t *testing.T) {
			file, set, _ := strings.Cut(name, ",")
			stem := filepath.Join("testdata", "recorded", "vllm_speculation", "vllm-0.32.0_"+file)
			type line struct {
				T       float64  `json:"t_ms"`
				Channel string   `json:"channel"`
				Frames  []string `json:"frames"`
			}
			var live []message
			for _, l := range zipped[line](t, stem+".events.jsonl.gz") {
				m := message{at: l.T, channel: l.Channel}
				for _, f := range l.Frames {
					b, err := hex.DecodeString(f)
					if err != nil {
						t.Fatal(err)
					}
					m.frames = append(m.frames, b)
				}
				live = append(live, m)
			}
			x := newIndex(t, Config{Recompute: len(set) / len(" set")})
			right, of := 0, 0
			for _, q := range zipped[request](t, stem+".requests.jsonl.gz") {
				for len(live) > 0 && live[0].at < q.T {
					feed(t, x, "e", live[0])
					live = live[1:]
				}
				var body struct {
					Salt string `json:"cache_salt"`
				}
				if err := json.Unmarshal(q.Body, &body); err != nil {
					t.Fatal(err)
				}
				got := max(0, x.Match(router.Prompt{Tokens: q.Tokens, Salt: body.Salt}, []string{"e"}, nil)[0])
				of++
				if got == q.Cached {
					right++
				} else {
					t.Logf("%s: %d, was %d", q.ID, got, q.Cached)
				}
				if got > 0 {
					x.Report("e", got+x.Recomputed("e"), q.Cached)
				}
			}
			check(t, x)
			t.Logf("%d of %d", right, of)
			if right != want.right || of != want.of || x.Recomputed("e") != want.blocks*x.BlockSize("e") {
				t.Errorf("%d of %d, %d computed again; want %+v", right, of, x.Recomputed("e"), want)
			}
		})
	}
}

// TestNewestVectors holds the index to the KVCacheManager of vLLM 0.33.0: frames of its own event structs
// with hashes of its own block hasher, and with each request the tokens that it found cached.
func TestNewestVectors(t *testing.T) {
	type vector struct {
		Name      string
		Lookahead int
		Seq       uint64
		Frame, Op string
		Tokens    []uint32
		Salt      string
		Adapter   string
		Media     [][]any
		Cached    int
	}
	files, err := filepath.Glob(filepath.Join("testdata", "recorded", "vllm_0.33.0", "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl.gz")
		t.Run(name, func(t *testing.T) {
			recompute := 0
			if name == "eagle_drop" {
				recompute = 1
			}
			x := newIndex(t, Config{Recompute: recompute})
			right, of, media := 0, 0, 0
			var misses []string
			for i, v := range zipped[vector](t, file) {
				if v.Op == "serve" {
					p := router.Prompt{Tokens: v.Tokens, Salt: v.Salt, Adapter: v.Adapter}
					got := max(0, x.Match(p, []string{"e"}, nil)[0])
					switch {
					case len(v.Media) > 0:
						// A prompt does not say which images its placeholders stand for: all before
						// the first is found, and never more than is there.
						media++
						before := (int(v.Media[0][1].(float64)) - v.Lookahead) / 16 * 16
						if want := min(v.Cached, before); got != want {
							t.Errorf("line %d: %d before an image, want %d", i, got, want)
						}
					case got == v.Cached:
						right++
						of++
					default:
						of++
						misses = append(misses, fmt.Sprintf("line %d: %d of %d, was %d", i, got, len(v.Tokens), v.Cached))
					}
				}
				if v.Frame == "" {
					continue
				}
				payload, err := hex.DecodeString(v.Frame)
				if err != nil {
					t.Fatal(err)
				}
				if err := x.Apply("e", v.Seq, decode(t, payload)); err != nil {
					t.Fatal(err)
				}
			}
			check(t, x)
			t.Logf("%d of %d; %d with images, exact up to the first", right, of, media)
			if right != of || of == 0 {
				t.Errorf("%d of %d: %s", right, of, strings.Join(misses[:min(len(misses), 8)], "; "))
			}
		})
	}
}
