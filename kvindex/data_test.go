package kvindex

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/shareddata"
)

type message struct {
	at      float64
	channel string
	index   int // of the socket
	frames  [][]byte
}

// lines decodes a file of one JSON object a line.
func lines[T any](t *testing.T, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return decodeLines[T](t, path, f)
}

// decodeLines returns the values of r, which has one of JSON on each line.
func decodeLines[T any](t *testing.T, path string, r io.Reader) []T {
	t.Helper()
	var out []T
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, v)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func messages(t *testing.T, path string) []message {
	t.Helper()
	type line struct {
		T       float64  `json:"t_ms"`
		Channel string   `json:"channel"`
		Frames  []string `json:"frames"`
		Index   int      `json:"endpoint_index"`
	}
	var out []message
	for _, l := range lines[line](t, path) {
		m := message{at: l.T, channel: l.Channel, index: l.Index}
		for _, f := range l.Frames {
			b, err := hex.DecodeString(f)
			if err != nil {
				t.Fatal(err)
			}
			m.frames = append(m.frames, b)
		}
		out = append(out, m)
	}
	return out
}

func seqOf(b []byte) uint64 {
	var n uint64
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n
}

func decode(t *testing.T, payload []byte) Batch {
	t.Helper()
	b, err := Decode(payload)
	if err != nil {
		t.Fatalf("Decode(%x): %v", payload[:min(len(payload), 60)], err)
	}
	if b.UnknownEvents+b.UnknownKeys+b.UnknownTokens != 0 {
		t.Errorf("Decode: %d unknown events, %d keys, %d tokens", b.UnknownEvents, b.UnknownKeys, b.UnknownTokens)
	}
	return b
}

func (m message) seq() uint64 { return seqOf(m.frames[len(m.frames)-2]) }

// feed applies a message, live or replayed: the last two frames are the same.
func feed(t *testing.T, x *Index, id string, m message) {
	t.Helper()
	if err := x.Apply(id, m.seq(), decode(t, m.frames[len(m.frames)-1])); err != nil {
		t.Fatalf("Apply %d: %v", m.seq(), err)
	}
}

type request struct {
	Kind   string            `json:"kind"`
	ID     string            `json:"id"`
	T      float64           `json:"t_ms"`
	Status int               `json:"status"`
	Body   json.RawMessage   `json:"body"`
	Header map[string]string `json:"headers"`
	Tokens []uint32          `json:"prompt_token_ids"`
	Usage  json.RawMessage   `json:"usage"`
	Cached int               `json:"cached_tokens"`
	Before json.RawMessage   `json:"seq_before"` // a number, or one for each rank
	After  json.RawMessage   `json:"seq_after"`
}

// rank is the data-parallel rank that served the request: the one that was asked
// for, or the one with the next sequence.
func (q *request) rank() string {
	for k, v := range q.Header {
		if strings.EqualFold(k, "X-data-parallel-rank") {
			return v
		}
	}
	var before, after map[string]int64
	if json.Unmarshal(q.Before, &before) != nil || json.Unmarshal(q.After, &after) != nil {
		return "0"
	}
	for rank, seq := range after {
		if was, ok := before[rank]; !ok || was != seq {
			return rank
		}
	}
	return "0"
}

// TestRecordings replays what real engines sent and counts what of it comes out
// right, file by file: go test -run TestRecordings -v ./kvindex
func TestRecordings(t *testing.T) {
	type counts = map[string][2]int
	t.Run("vLLM", func(t *testing.T) {
		recorded(t, "vllm_live", func(t *testing.T, dir string, full bool) {
			want := counts{
				"one group, sequential": {141, 148}, "sliding window": {26, 27},
				"sliding window, session ids": {7, 7}, "data parallel": {8, 8},
			}
			if full {
				want["one group, sequential"], want["sliding window"] = [2]int{949, 975}, [2]int{80, 81}
			}
			vllmRecordings(t, dir, want)
		})
	})
	t.Run("SGLang", func(t *testing.T) {
		recorded(t, "sglang_live", func(t *testing.T, dir string, _ bool) { sglangRecordings(t, dir) })
	})
	t.Run("without truth", func(t *testing.T) {
		recorded(t, "sglang_live", func(t *testing.T, dir string, _ bool) { otherRecordings(t, dir) })
	})
}

// recorded runs a test with the recordings of this name that are in testdata, and
// with the whole folder, or file, that they were cut from, if it is there.
func recorded(t *testing.T, name string, test func(t *testing.T, path string, full bool)) {
	t.Run("cut", func(t *testing.T) { test(t, filepath.Join("testdata", "recorded", name), false) })
	t.Run("full", func(t *testing.T) { test(t, shareddata.Path(t, name), true) })
}

// vllmRecordings counts the requests with cached tokens that the received events
// by then foretell.
func vllmRecordings(t *testing.T, dir string, want map[string][2]int) {
	files, err := filepath.Glob(filepath.Join(dir, "v*", "*.events.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in %s: %v", dir, err)
	}
	sort.Strings(files)
	sum := map[string][2]int{}
	t.Logf("%-36s right    of", "file")
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, dir+string(filepath.Separator)), ".events.jsonl")
		right, of, misses := replayVLLM(t, file)
		class := "one group, sequential"
		switch {
		case strings.Contains(name, "session_id_hybrid"):
			class = "sliding window, session ids"
		case strings.Contains(name, "hybrid"):
			class = "sliding window"
		case strings.Contains(name, "concurrent"), strings.Contains(name, "late_join"):
			class = "concurrent, late join"
		case strings.Contains(name, "data_parallel"):
			class = "data parallel"
		}
		s := sum[class]
		sum[class] = [2]int{s[0] + right, s[1] + of}
		t.Logf("%-36s %5d %5d  %s", name, right, of, strings.Join(misses, "; "))
	}
	for _, class := range slices.Sorted(mapKeys(sum)) {
		t.Logf("%-36s %5d %5d", class, sum[class][0], sum[class][1])
	}
	for class, w := range want {
		if sum[class] != w {
			t.Errorf("%s: %d of %d, want %d of %d", class, sum[class][0], sum[class][1], w[0], w[1])
		}
	}
}

func replayVLLM(t *testing.T, file string) (right, of int, misses []string) {
	x, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	var live []message
	for _, m := range messages(t, file) {
		if m.channel == "live" && len(m.frames) == 3 {
			live = append(live, m)
		}
	}
	ids := []string{"0", "1"}
	for _, q := range lines[request](t, strings.Replace(file, ".events.", ".requests.", 1)) {
		if q.Kind != "request" || q.Status != 200 || len(q.Usage) == 0 || string(q.Usage) == "null" || len(q.Tokens) == 0 {
			continue
		}
		for len(live) > 0 && live[0].at < q.T {
			feed(t, x, strconv.Itoa(live[0].index), live[0])
			live = live[1:]
		}
		var body struct {
			Model string `json:"model"`
			Salt  string `json:"cache_salt"`
		}
		if err := json.Unmarshal(q.Body, &body); err != nil {
			t.Fatal(err)
		}
		p := router.Prompt{Model: body.Model, Salt: body.Salt, Tokens: q.Tokens}
		if strings.HasPrefix(body.Model, "adapter-") {
			p.Adapter = body.Model
		}
		got := max(0, x.Match(p, ids, nil)[slices.Index(ids, q.rank())])
		of++
		if got == q.Cached {
			right++
		} else {
			misses = append(misses, fmt.Sprintf("%s: %d, was %d", q.ID, got, q.Cached))
		}
	}
	for _, m := range live {
		feed(t, x, strconv.Itoa(m.index), m)
	}
	check(t, x)
	return right, of, misses
}

type truth struct {
	Header    struct{ Version, Scenario string }
	Sequences map[string]struct {
		Tokens []uint32 `json:"tokens"`
		Extra  *string  `json:"extra_key"`
		Salt   *string  `json:"cache_salt"`
	}
	Steps []struct {
		Step     int            `json:"step"`
		Op       string         `json:"op"`
		LastSeq  *int64         `json:"last_seq"`
		Resident map[string]int `json:"resident"`
	}
}

// sglangRecordings holds the index against what real SGLang caches said they held,
// step by step.
func sglangRecordings(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.truth.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in %s: %v", dir, err)
	}
	t.Logf("%-52s  right    of", "file")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".truth.json")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tr truth
		if err := json.Unmarshal(raw, &tr); err != nil {
			t.Fatal(err)
		}
		old := strings.HasPrefix(name, "sglang-0.5.3_")
		x, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		all := merged(t, strings.Replace(file, ".truth.json", ".jsonl", 1))
		right, of := 0, 0
		var misses []string
		last := int64(-1)
		for _, step := range tr.Steps {
			if step.LastSeq == nil {
				continue // it was started over: the next sequence says so
			}
			for last != *step.LastSeq {
				if len(all) == 0 {
					t.Fatalf("%s: no message %d", name, *step.LastSeq)
				}
				feed(t, x, "t", all[0])
				last = int64(all[0].seq())
				all = all[1:]
			}
			for _, seq := range slices.Sorted(mapKeys(step.Resident)) {
				s := tr.Sequences[seq]
				p := router.Prompt{Tokens: append(slices.Clone(s.Tokens), 1<<31)}
				if s.Salt != nil {
					p.Salt = *s.Salt
				}
				if strings.Contains(seq, "lora") && !strings.Contains(seq, "unregistered") {
					p.Adapter = "adapter-a"
				}
				if s.Extra != nil && !strings.Contains(seq, "lora") {
					continue
				}
				if strings.Contains(name, "recorder_tiers") && strings.HasPrefix(step.Op, "demote") {
					continue
				}
				got := max(0, x.Match(p, []string{"t"}, nil)[0])
				of++
				if got == step.Resident[seq] {
					right++
				} else {
					misses = append(misses, fmt.Sprintf("step %d %s %s: %d, was %d", step.Step, step.Op, seq, got, step.Resident[seq]))
				}
			}
		}
		check(t, x)
		t.Logf("%-52s %6d %5d", name, right, of)
		if right != of && !old {
			t.Errorf("%s: %s", name, strings.Join(misses[:min(len(misses), 8)], "; "))
		}
	}
}

// otherRecordings are streams of which nobody recorded what the cache held: each
// message is read and applied.
func otherRecordings(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	for _, file := range files {
		if _, err := os.Stat(strings.TrimSuffix(file, ".jsonl") + ".truth.json"); err == nil {
			continue
		}
		x, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, m := range messages(t, file) {
			if m.channel != "live" || len(m.frames) != 3 {
				continue
			}
			b, err := Decode(m.frames[2])
			if err != nil {
				t.Errorf("%s, message %d: %v", file, m.seq(), err)
				continue
			}
			if err := x.Apply(fmt.Sprint("rank ", b.Rank), m.seq(), b); err != nil && !errors.Is(err, ErrGap) {
				t.Error(err)
			}
			n++
		}
		check(t, x)
		st := x.Stats()
		t.Logf("%-52s %d messages, %d blocks, %d keys and %d events that are not known",
			strings.TrimSuffix(filepath.Base(file), ".jsonl"),
			n, st.Blocks, st.UnknownKeys, st.UnknownEvents)
		applied += n
	}
	if applied == 0 {
		t.Error("nothing was applied")
	}
}

// merged returns the messages of a recording in the order in which they were
// sent: the live ones, and those that only a replay has.
func merged(t *testing.T, path string) []message {
	t.Helper()
	type key struct {
		time float64
		seq  uint64
	}
	sent := map[key]message{}
	for _, m := range messages(t, path) {
		if m.channel != "live" && m.channel != "replay" || len(m.frames[len(m.frames)-1]) == 0 {
			continue
		}
		k := key{decode(t, m.frames[len(m.frames)-1]).Time, m.seq()}
		if _, ok := sent[k]; !ok {
			sent[k] = m
		}
	}
	keys := slices.SortedFunc(mapKeys(sent), func(a, b key) int { return cmp.Compare(a.time, b.time) })
	var out []message
	for _, k := range keys {
		out = append(out, sent[k])
	}
	return out
}

func mapKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
