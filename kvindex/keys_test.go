package kvindex

import (
	"fmt"
	"testing"

	router "github.com/warmroute/router"
)

// fieldsOf is a map that keeps its order: keys and values in turn.
type fieldsOf []any

// any writes a value.
func (p *packer) any(v any) {
	switch v := v.(type) {
	case nil:
		p.nil()
	case bool:
		p.b = append(p.b, map[bool]byte{false: 0xc2, true: 0xc3}[v])
	case int:
		p.int(int64(v))
	case uint64:
		p.uint(v)
	case float64:
		p.float(v)
	case string:
		p.str(v)
	case []byte:
		p.bytes(v)
	case []int:
		p.array(len(v))
		for _, e := range v {
			p.any(e)
		}
	case []any:
		p.array(len(v))
		for _, e := range v {
			p.any(e)
		}
	case fieldsOf:
		p.object(len(v) / 2)
		for _, e := range v {
			p.any(e)
		}
	default:
		panic(fmt.Sprintf("%T", v))
	}
}

// wired applies events as an engine sends them.
type wired struct {
	t   *testing.T
	x   *Index
	seq uint64
}

func newWired(t *testing.T, c Config) *wired { return &wired{t: t, x: newIndex(t, c)} }

func (w *wired) say(events ...any) {
	w.t.Helper()
	var p packer
	p.any([]any{1.5, events, 0})
	b, err := Decode(p.b)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.x.Apply("a", w.seq, b); err != nil {
		w.t.Fatal(err)
	}
	w.seq++
	check(w.t, w.x)
}

// cached compares the leading tokens of a prompt that the target holds.
func (w *wired) cached(want int, p router.Prompt) {
	w.t.Helper()
	if got := w.x.Match(p, []string{"a"}, nil)[0]; got != want {
		w.t.Errorf("%d tokens of %d are cached, want %d", got, len(p.Tokens), want)
	}
}

// ids returns the numbers from a up to b.
func ids(a, b int) []int {
	var out []int
	for i := a; i < b; i++ {
		out = append(out, i)
	}
	return out
}

// text is a prompt of these numbers, and more after them.
func text(from []int, more ...int) router.Prompt {
	var p router.Prompt
	for _, n := range append(append([]int{}, from...), more...) {
		p.Tokens = append(p.Tokens, uint32(n))
	}
	return p
}

// store is an event of blocks of 16 tokens, with further members.
func stored16(hashes []int, parent any, tokens []int, more ...any) fieldsOf {
	return append(fieldsOf{"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", parent,
		"token_ids", tokens, "block_size", 16, "lora_id", nil, "medium", "GPU", "lora_name", nil}, more...)
}

// TestLookahead: the tokens after a block that its hash covers belong to its key.
func TestLookahead(t *testing.T) {
	w := newWired(t, Config{})
	w.say(stored16([]int{1, 2}, nil, ids(1000, 1032), "lookahead_token_ids", []any{[]int{1016}, []int{7}}))
	w.cached(16, text(ids(1000, 1032), 99))
	w.cached(32, text(ids(1000, 1032), 7))
	w.cached(32, text(ids(1000, 1032), 7, 8))
	w.cached(16, text(ids(1000, 1032)))
	w.cached(0, text(ids(1000, 1016)))
	w.cached(16, text(ids(1000, 1016), 1016))
	w.cached(0, text(ids(1000, 1016), 5))
	// The same blocks before another token are others.
	w.say(stored16([]int{3}, 1, ids(1016, 1032), "lookahead_token_ids", []any{[]int{99}}))
	w.cached(32, text(ids(1000, 1032), 99))
	w.cached(32, text(ids(1000, 1032), 7))
	w.say(fieldsOf{"type", "BlockRemoved", "block_hashes", []int{2}, "medium", "GPU"})
	w.cached(32, text(ids(1000, 1032), 99))
	w.cached(16, text(ids(1000, 1032), 7))
	// A child of the second block.
	w.say(stored16([]int{4}, 3, ids(99, 115), "lookahead_token_ids", []any{[]int{1}}))
	w.cached(48, text(ids(1000, 1032), append(ids(99, 115), 1)...))
}

// TestLookaheadOfSeveral: with n tokens ahead a prompt's last n tokens give no block.
func TestLookaheadOfSeveral(t *testing.T) {
	for n := 1; n <= 5; n++ {
		w := newWired(t, Config{})
		all := ids(1000, 1100)
		ahead := []any{}
		for i := 16; i <= 64; i += 16 {
			ahead = append(ahead, all[i:i+n])
		}
		w.say(stored16([]int{1, 2, 3, 4}, nil, all[:64], "lookahead_token_ids", ahead))
		for size := range 80 {
			want := min(max(0, size-n)/16, max(0, size-1)/16, 4) * 16
			w.cached(want, text(all[:size]))
		}
	}
}

// TestLookaheadOfOtherForms: whatever cannot be compared with a prompt at least makes blocks differ.
func TestLookaheadOfOtherForms(t *testing.T) {
	for name, v := range map[string][]any{
		"empty lists":      {[]any{[]int{}, []int{}}, 32},
		"nothing":          {nil, 32},
		"no list":          {5, 32},
		"one is shorter":   {[]any{[]int{1016, 1017}, []int{7}}, 16},
		"one is empty":     {[]any{[]int{1016}, []int{}}, 16},
		"one is missing":   {[]any{[]int{1016}, nil}, 16},
		"too few":          {[]any{[]int{1016}}, 0},
		"no tokens":        {[]any{[]any{"x"}, []any{"y"}}, 0},
		"more than can be": {[]any{ids(0, 300), ids(0, 300)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWired(t, Config{})
			w.say(stored16([]int{1, 2}, nil, ids(1000, 1032), "lookahead_token_ids", v[0]))
			w.cached(v[1].(int), text(ids(1000, 1032), 7, 8, 9))
		})
	}
	w := newWired(t, Config{})
	w.say(stored16([]int{1}, nil, ids(1000, 1016), "lookahead_token_ids", []any{[]int{1016}}))
	w.say(stored16([]int{2}, 1, ids(1016, 1032))) // says nothing of the tokens that follow
	w.cached(16, text(ids(1000, 1032), 7))
}

// TestOverlap: Dynamo says that blocks reach one token into the next, and sends one token more.
func TestOverlap(t *testing.T) {
	w := newWired(t, Config{})
	w.say(stored16([]int{1, 2}, nil, ids(1000, 1033), "is_eagle", true))
	w.cached(32, text(ids(1000, 1033)))
	w.cached(16, text(ids(1000, 1032), 1))
	w.say(stored16([]int{3, 4}, nil, ids(2000, 2032), "is_eagle", false))
	w.cached(0, text(ids(2000, 2033)))
}

// TestUnknownLists: a list of lists of tokens, one for each hash, may be part of the hashes; any
// other member that is not known is ignored.
func TestUnknownLists(t *testing.T) {
	for name, v := range map[string][]any{
		"lists of tokens":      {[]any{[]int{5}, []int{6}}, 0},
		"of one of the blocks": {[]any{[]int{}, []int{6}}, 16},
		"or nil":               {[]any{nil, []int{6}}, 16},
		"empty":                {[]any{[]int{}, []int{}}, 32},
		"all nil":              {[]any{nil, nil}, 32},
		"of names":             {[]any{[]any{"a"}, []any{"b"}}, 32},
		"too many":             {[]any{[]int{5}, []int{6}, []int{7}}, 32},
		"numbers":              {[]int{5, 6}, 32},
		"wide numbers":         {[]any{[]any{uint64(1) << 63}, []any{1}}, 32},
		"a name":               {"x", 32},
		"a map":                {fieldsOf{"x", []any{[]int{1}}}, 32},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWired(t, Config{})
			w.say(stored16([]int{1, 2}, nil, ids(1000, 1032), "new_member", v[0]))
			w.cached(v[1].(int), text(ids(1000, 1032), 7))
			// The same as an element behind those that are known.
			w = newWired(t, Config{})
			w.say([]any{"BlockStored", []int{1, 2}, nil, ids(1000, 1032), 16, nil, "GPU", nil, nil, 0, nil, nil, nil, nil, v[0]})
			w.cached(v[1].(int), text(ids(1000, 1032), 7))
		})
	}
}

// TestNamesBeyondThoseKept: one block under many hashes keeps what hangs below each of them.
func TestNamesBeyondThoseKept(t *testing.T) {
	for _, set := range []bool{false, true} {
		for _, n := range []int{80, 700} {
			w := newWired(t, Config{Set: set})
			for i := range n {
				w.say(stored16([]int{10 + i}, nil, ids(1000, 1016)))
				w.say(stored16([]int{10_000 + i}, 10+i, ids(5000+100*i, 5016+100*i)))
			}
			right := 0
			for i := range n {
				p := text(append(ids(1000, 1016), ids(5000+100*i, 5016+100*i)...), 1)
				if w.x.Match(p, []string{"a"}, nil)[0] == 32 {
					right++
				}
			}
			if right != n {
				t.Errorf("set %v: %d of %d conversations are found", set, right, n)
			}
			// The block is there until the last name of it goes.
			for i := range n - 1 {
				w.say(fieldsOf{"type", "BlockRemoved", "block_hashes", []int{10_000 + i, 10 + i}, "medium", "GPU"})
			}
			if !set {
				w.cached(16, text(ids(1000, 1016), 1))
			}
			w.say(fieldsOf{"type", "BlockRemoved", "block_hashes", []int{10_000 + n - 1, 10 + n - 1}, "medium", "GPU"})
			w.cached(0, text(ids(1000, 1016), 1))
			if s := w.x.Stats(); s.Blocks != 0 || s.UnknownRemoved != 0 {
				t.Errorf("%+v", s)
			}
		}
	}
}

// TestNamesThatEndAlike: hashes of bytes with equal ends keep what hangs below them.
func TestNamesThatEndAlike(t *testing.T) {
	w := newWired(t, Config{})
	const n = 200
	name := func(i int) []byte { return []byte{byte(i), byte(i >> 8), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10} }
	for i := range n {
		e := stored16(nil, nil, ids(1000*i, 1000*i+16))
		e[3] = []any{name(i)}
		w.say(e)
		c := stored16([]int{10_000 + i}, nil, ids(1000*i+16, 1000*i+32))
		c[5] = name(i)
		w.say(c)
	}
	for i := range n {
		w.cached(32, text(ids(1000*i, 1000*i+33)))
		w.say(fieldsOf{"type", "BlockRemoved", "block_hashes", []any{name(i), 10_000 + i}, "medium", "GPU"})
		w.cached(0, text(ids(1000*i, 1000*i+33)))
	}
}

// TestIdentitiesOfMedia: whatever an engine calls an image, its block is not that of another image, nor
// that of text; a salt and an adapter are found among the keys, tagged or not.
func TestIdentitiesOfMedia(t *testing.T) {
	type list = []any
	of := func(key string, first, second any) list { return list{key, list{first, second}} }
	for name, keys := range map[string]func(id string) []any{
		"vLLM":            func(id string) list { return of("extra_keys", nil, list{list{id, -3}}) },
		"vLLM up to 0.17": func(id string) list { return of("extra_keys", nil, list{id}) },
		"tagged":          func(id string) list { return of("extra_keys", nil, list{list{"mm", id, 4}}) },
		"typed":           func(id string) list { return of("extra_keys", nil, list{fieldsOf{"type", "mm", "id", id}}) },
		"embeddings":      func(id string) list { return of("extra_keys", nil, list{[]byte(id)}) },
		"Dynamo": func(id string) list {
			return of("block_mm_infos", nil, fieldsOf{"mm_objects", list{fieldsOf{"mm_hash", id}}})
		},
		"TensorRT-LLM": func(id string) list {
			return of("mm_keys", list{}, list{fieldsOf{"type", "mm_key", "hash", id, "start_offset", 2}})
		},
		"a list of their hashes": func(id string) list { return of("mm_hashes", nil, list{id}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWired(t, Config{})
			w.say(stored16([]int{1, 2}, nil, ids(1000, 1032), keys("image-a")...))
			w.say(stored16([]int{1, 3}, nil, ids(1000, 1032), keys("image-b")...))
			w.cached(16, text(ids(1000, 1032), 1)) // of text
			if s := w.x.Stats(); s.Blocks != 3 {
				t.Errorf("%d blocks, want 3", s.Blocks)
			}
			w.say(fieldsOf{"type", "BlockRemoved", "block_hashes", []int{2}, "medium", "GPU"})
			if s := w.x.Stats(); s.Blocks != 2 {
				t.Errorf("%d blocks, want 2", s.Blocks)
			}
		})
	}
	for name, keys := range map[string][]any{
		"bare":   {"adapter", "s"},
		"tagged": {[]any{"lora", "adapter", "lora/a"}, []any{"cache_salt", "s"}},
	} {
		w := newWired(t, Config{})
		e := stored16([]int{1, 2}, nil, ids(1000, 1032), "extra_keys", []any{keys, keys[:1]})
		e[15] = "adapter"
		w.say(e)
		p := text(ids(1000, 1032), 1)
		p.Adapter = "adapter"
		w.cached(0, p)
		p.Salt = "s"
		if got := w.x.Match(p, []string{"a"}, nil)[0]; got != 32 {
			t.Errorf("%s: %d, want 32", name, got)
		}
	}
}
