package kvindex

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/shareddata"
)

// brief returns a batch in one line.
func brief(b Batch) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v rank %d", b.Time, b.Rank)
	for _, e := range b.Events {
		fmt.Fprintf(&s, "; %v %d", e.Kind, e.Hashes)
		if e.Sums != nil {
			fmt.Fprintf(&s, " sums %x", e.Sums)
		}
		if e.HasParent {
			fmt.Fprintf(&s, " after %d", e.Parent)
			if e.ParentSum != 0 {
				fmt.Fprintf(&s, " sum %x", e.ParentSum)
			}
		}
		if e.Kind == Stored {
			fmt.Fprintf(&s, " tokens %d by %d", e.Tokens, e.BlockSize)
		}
		if e.Pairs {
			s.WriteString(" pairs")
		}
		if e.Extra != nil {
			fmt.Fprintf(&s, " extra %x", e.Extra)
		}
		if e.Left != nil {
			fmt.Fprintf(&s, " left %d", e.Left)
		}
		if e.Medium != Device {
			fmt.Fprintf(&s, " medium %d", e.Medium)
		}
		if e.Group >= 0 || e.Spec != SpecNone {
			fmt.Fprintf(&s, " group %d spec %d window %d", e.Group, e.Spec, e.Window)
		}
		if e.Adapter != "" || e.Salt != "" {
			fmt.Fprintf(&s, " scope %q %q", e.Adapter, e.Salt)
		}
		if e.Reused {
			s.WriteString(" reused")
		}
	}
	if b.UnknownEvents+b.UnknownKeys+b.UnknownTokens > 0 {
		fmt.Fprintf(&s, "; unknown: %d events, %d keys, %d tokens", b.UnknownEvents, b.UnknownKeys, b.UnknownTokens)
	}
	return s.String()
}

type golden struct {
	Hex  string `json:"hex"`
	Want string `json:"want"`
	Note string `json:"note"`
}

func readGolden(t *testing.T, path string) map[string]golden {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g map[string]golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGolden holds Decode against payloads in all the forms that are known,
// written by hand from the formats.
func TestGolden(t *testing.T) {
	for name, g := range readGolden(t, "testdata/payloads.json") {
		payload, err := hex.DecodeString(strings.ReplaceAll(g.Hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b, err := Decode(payload)
		got := brief(b)
		if err != nil {
			got = "error"
		}
		if got != g.Want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, g.Want)
		}
	}
}

// TestVectors does so with payloads that the engines' own encoder wrote.
func TestVectors(t *testing.T) {
	recorded(t, "kv_event_vectors.json", func(t *testing.T, path string, _ bool) {
		want := readGolden(t, "testdata/vectors.json")
		for name, g := range readGolden(t, path) {
			payload, err := hex.DecodeString(g.Hex)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Decode(payload)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if got := brief(b); got != want[name].Want {
				t.Errorf("%s:\n got %s\nwant %s", name, got, want[name].Want)
			}
		}
	})
}

// TestSimulator replays what llm-d's simulator sent: what it announces can be
// matched, and a removal shortens it.
func TestSimulator(t *testing.T) {
	type line struct {
		Run     string
		Seq     uint64
		Payload string
	}
	x := newIndex(t, Config{})
	right, of := map[string]int{}, map[string]int{}
	for _, l := range lines[line](t, shareddata.Path(t, "llmd_sim_kv_events.jsonl")) {
		payload, err := hex.DecodeString(l.Payload)
		if err != nil {
			t.Fatal(err)
		}
		b := decode(t, payload)
		if err := x.Apply(l.Run, l.Seq, b); err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Events {
			if e.Kind != Stored || e.HasParent && e.Parent != 0 {
				continue
			}
			n := len(e.Hashes)
			for _, f := range b.Events {
				if f.Kind == Removed && slices.Contains(f.Hashes, e.Hashes[0]) {
					n = -1 // stored and removed in one batch: in which order is another test's
				}
			}
			if n < 0 {
				continue
			}
			p := router.Prompt{Adapter: e.Adapter, Tokens: append(slices.Clone(e.Tokens), 0)}
			of[l.Run]++
			if x.Match(p, []string{l.Run}, nil)[0] >= n*int(e.BlockSize) {
				right[l.Run]++
			}
		}
	}
	check(t, x)
	for run, n := range of {
		s, _ := x.Target(run)
		t.Logf("%-12s %2d of %2d prompts; %d blocks stored, %d removed, %d clears, %d resident now", run, right[run], n,
			s.Stored, s.Removed, s.Cleared, s.Blocks)
		if right[run] != n || s.Orphaned > 0 {
			t.Errorf("%s: %d of %d prompts, %+v", run, right[run], n, s)
		}
	}
	if s, _ := x.Target("array_sleep"); s.Cleared != 1 || s.Blocks >= s.Stored {
		t.Errorf("asleep: %+v", s)
	}
	if s, _ := x.Target("array_evict"); s.Removed == 0 || s.Blocks > 20 {
		t.Errorf("a cache of 20 blocks: %+v", s)
	}
}

// TestDynamo: TensorRT-LLM's events as Dynamo sends them on.
func TestDynamo(t *testing.T) {
	recorded(t, "sglang_live/dynamo-1.6.1_trtllm_zmq.jsonl", func(t *testing.T, path string, _ bool) { dynamo(t, path) })
}

func dynamo(t *testing.T, path string) {
	x := newIndex(t, Config{})
	n, most := 0, 0
	for _, m := range messages(t, path) {
		if m.channel == "live" {
			feed(t, x, "t", m)
			n++
			s, _ := x.Target("t")
			most = max(most, s.Blocks)
		}
	}
	check(t, x)
	s, _ := x.Target("t")
	t.Logf("%d messages, %d of %d blocks resident before the clear", n, most, s.Stored)
	if n != 7 || most != 5 || s.Stored != 6 || s.Cleared != 1 || s.Blocks != 0 || s.Orphaned > 0 {
		t.Errorf("%d messages: %+v", n, s)
	}
}

var ignoreArenas = cmpopts.IgnoreUnexported(Batch{})

// TestDialects: one history in every form decodes to the same events.
func TestDialects(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	events := []Event{
		put("abc", 3).with(func(e *Event) {
			e.Adapter, e.Salt, e.Extra = "lora", "salt", []uint64{7, 0, 1 << 40}
			e.Group = 0
		}),
		put("abcd", 1).with(func(e *Event) { e.Adapter, e.Group = "lora", 0 }),
		drop("abc", "a").with(func(e *Event) { e.Group = 0 }),
		{Kind: Cleared, Group: -1},
		put("xy", 2).with(func(e *Event) { e.Group, e.Spec, e.Window = 3, SpecSliding, 1024 }),
	}
	var want Batch
	for i := range 64 {
		d := dialect{maps: i&1 > 0, mapBatch: i&2 > 0, wide: i&4 > 0, signed: i&8 > 0}
		if i&16 > 0 {
			d.shuffle = r
		}
		b, err := Decode(d.encode(3, events))
		if err != nil {
			t.Fatalf("%+v: %v", d, err)
		}
		if b.Rank != 3 || b.Time != 1.5 || len(b.Events) != len(events) {
			t.Fatalf("%+v: %s", d, brief(b))
		}
		for j := range b.Events {
			for k, x := range b.Events[j].Extra { // a fingerprint of its own
				if (x != 0) != (events[j].Extra[k] != 0) {
					t.Errorf("%+v: extra %x", d, b.Events[j].Extra)
				}
			}
			if !d.wide { // the same bytes have the same fingerprint
				if want.Events == nil {
					want = b
				} else if diff := cmp.Diff(want.Events[j], b.Events[j]); diff != "" {
					t.Errorf("%+v: %s", d, diff)
				}
			}
			got := b.Events[j]
			got.Extra = events[j].Extra
			if diff := cmp.Diff(events[j], got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%+v: %s", d, diff)
			}
		}
	}
}

// TestDecodeTwice: a Batch that is used again keeps nothing of before.
func TestDecodeTwice(t *testing.T) {
	var payloads [][]byte
	for _, g := range readGolden(t, "testdata/payloads.json") {
		p, _ := hex.DecodeString(strings.ReplaceAll(g.Hex, " ", ""))
		payloads = append(payloads, p)
	}
	var again Batch
	for range 3 {
		for _, p := range payloads {
			want, werr := Decode(p)
			kept := slices.Clone(p)
			err := again.Decode(p)
			clear(p) // nothing of the payload is kept
			if (err == nil) != (werr == nil) {
				t.Errorf("%v, at first %v", err, werr)
			}
			if diff := cmp.Diff(want, again, ignoreArenas, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			copy(p, kept)
		}
	}
}

// TestDecodeBounds: no number in a header makes Decode allocate or loop beyond
// what the payload can hold.
func TestDecodeBounds(t *testing.T) {
	nest := strings.Repeat("\x91", 1<<20) // arrays in arrays
	for name, payload := range map[string]string{
		"nothing":       "",
		"events":        "\x93\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xdd\xff\xff\xff\xff\xc0",
		"map":           "\xdf\xff\xff\xff\xff",
		"hashes":        "\x92\x01\x91\x92\xacBlockRemoved\xdd\x7f\xff\xff\xff\x01",
		"tokens":        "\x92\x01\x91\x95\xabBlockStored\x91\x01\xc0\xdd\x7f\xff\xff\xff\x01\x04",
		"string":        "\x92\x01\x91\x92\xdb\xff\xff\xff\xff\xc0",
		"nested":        nest,
		"nested skip":   "\x92\x01\x91\x92\xa3Odd" + nest,
		"trailing":      "\x92\x01\x90\xc0",
		"never a type":  "\xc1",
		"negative rank": "\x93\x01\x90\xff",
		"ext":           "\x92\x01\x91\xc9\xff\xff\xff\xff\x01",
	} {
		if b, err := Decode([]byte(payload)); err == nil {
			t.Errorf("%s: %s", name, brief(b))
		}
	}
	if _, err := Decode(make([]byte, maxPayload+1)); err == nil {
		t.Error("too long a payload is read")
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

func FuzzDecode(f *testing.F) {
	for _, file := range []string{"testdata/payloads.json", "testdata/vectors.json"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var g map[string]golden
		if err := json.Unmarshal(raw, &g); err != nil {
			f.Fatal(err)
		}
		for _, p := range g {
			b, _ := hex.DecodeString(strings.ReplaceAll(p.Hex, " ", ""))
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		kept := slices.Clone(payload)
		var b Batch
		var err error
		got := allocated(func() { b, err = Decode(payload) })
		if limit := uint64(24*len(payload) + 16<<10); got > limit {
			t.Errorf("%d bytes are allocated for a payload of %d", got, len(payload))
		}
		if !slices.Equal(kept, payload) {
			t.Error("the payload is changed")
		}
		if err != nil {
			if len(b.Events) > 0 {
				t.Error("events beside an error")
			}
			return
		}
		x := newIndex(t, Config{MaxBlocks: 100, MaxOrphans: 50, HostCredit: .5})
		for seq := range uint64(2) {
			if err := x.Apply("a", seq, b); err != nil {
				t.Fatal(err)
			}
			check(t, x)
		}
		for _, e := range b.Events {
			got := x.Match(router.Prompt{Adapter: e.Adapter, Salt: e.Salt, Tokens: e.Tokens}, []string{"a"}, nil)[0]
			if got < 0 || got > max(0, len(e.Tokens)-1) {
				t.Errorf("%d of %d tokens", got, len(e.Tokens))
			}
		}
	})
}

func TestEventSize(t *testing.T) {
	// The bound of Decode's allocations depends on it: the shortest event is 13
	// bytes long.
	if n := reflect.TypeFor[Event]().Size(); n > 13*18 {
		t.Errorf("an Event takes %d bytes", n)
	}
}
