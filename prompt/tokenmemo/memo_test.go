package tokenmemo

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	router "github.com/warmroute/router"
)

type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Reason  string `json:"reasoning,omitempty"`
}

func chatKey(t testing.TB, beside string, turns []turn) Key {
	t.Helper()
	b, err := json.Marshal(turns)
	if err != nil {
		t.Fatal(err)
	}
	return keyOf(t, chatPath, `{"model":"m"`+beside+`,"messages":`+string(b)+`}`)
}

func newMemo(t testing.TB, c Config) *Memo {
	t.Helper()
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// template renders a chat to ids, as some engine might. Ids below 16 are of the
// template; text is split in pairs, so that what stands on a turn's edge can
// become one token with its neighbour.
type template func(turns []turn) []uint32

func pairs(dst []uint32, s string) []uint32 {
	for len(s) > 1 {
		dst, s = append(dst, 1<<16|uint32(s[0])<<8|uint32(s[1])), s[2:]
	}
	if len(s) == 1 {
		dst = append(dst, 1<<8|uint32(s[0]))
	}
	return dst
}

var templates = map[string]template{
	// Turns are opened and closed by tokens of their own.
	"marks": func(turns []turn) []uint32 {
		ids := []uint32{1}
		for _, m := range turns {
			ids = append(pairs(append(pairs(append(ids, 2), m.Role), 3), m.Content), 4, 5)
		}
		return append(pairs(append(ids, 2), "assistant"), 3)
	},
	// All is one text: a token can span the edge of a turn.
	"merging": func(turns []turn) []uint32 {
		var b strings.Builder
		for _, m := range turns {
			b.WriteString(m.Role + ":" + m.Content + "\n")
		}
		b.WriteString("assistant:")
		return pairs(nil, b.String())
	},
	// The reply is opened by a part that no past turn has.
	"thinking": func(turns []turn) []uint32 {
		ids := []uint32{1}
		for _, m := range turns {
			ids = append(pairs(append(pairs(append(ids, 2), m.Role), 3), m.Content), 4)
		}
		return append(ids, 2, 6, 3, 7, 7)
	},
	// The system prompt moves to the last user's turn.
	"moving": func(turns []turn) []uint32 {
		ids := []uint32{1}
		system := ""
		for i, m := range turns {
			if m.Role == "system" {
				system = m.Content
				continue
			}
			if ids = append(ids, 2); i == len(turns)-1 {
				ids = pairs(ids, system)
			}
			ids = append(pairs(ids, m.Content), 4)
		}
		return ids
	},
	// What past turns thought is left out, except since the last user's turn.
	"stripping": func(turns []turn) []uint32 {
		last := 0
		for i, m := range turns {
			if m.Role == "user" {
				last = i
			}
		}
		ids := []uint32{1}
		for i, m := range turns {
			ids = pairs(append(ids, 2), m.Role)
			if i > last {
				ids = pairs(append(ids, 8), m.Reason)
			}
			ids = append(pairs(append(ids, 3), m.Content), 4)
		}
		return append(pairs(append(ids, 2), "assistant"), 3)
	},
}

// TestMemoExact plays random conversations, which branch, repeat and are
// edited, through every template: an answer is always a prefix of the truth, a
// whole one all of it, and where the template allows it there are answers.
func TestMemoExact(t *testing.T) {
	for name, render := range templates {
		t.Run(name, func(t *testing.T) {
			wholes, prefixes, known, total := play(t, rand.New(rand.NewPCG(1, 2)), render, newMemo(t, Config{}), 1200)
			t.Logf("%d whole, %d prefixes, %d of %d tokens known", wholes, prefixes, known, total)
			if wholes == 0 || prefixes == 0 && name != "moving" {
				t.Errorf("%d whole, %d prefixes", wholes, prefixes)
			}
		})
	}
}

func play(t testing.TB, r *rand.Rand, render template, m *Memo, steps int) (wholes, prefixes, known, total int) {
	talks := make([][]turn, 4)
	for range steps {
		at := r.IntN(len(talks))
		c := slices.Clone(talks[at])
		switch n := r.IntN(20); {
		case len(c) == 0 || len(c) > 14 || n == 0:
			c = nil
			if r.IntN(3) > 0 {
				c = append(c, turn{Role: "system", Content: fmt.Sprint("You are ", r.IntN(3))})
			}
			c = append(c, turn{Role: "user", Content: fmt.Sprint(r.IntN(4))})
		case n == 1: // the same again
		case n == 2: // back to its place
			c = c[:1+r.IntN(len(c))]
		case n == 3: // another's beginning
			c = slices.Clone(talks[r.IntN(len(talks))])
			if len(c) == 0 {
				continue
			}
		case n == 4: // two turns of one role
			c = append(c, turn{Role: "user", Content: fmt.Sprint(r.IntN(3))})
		default:
			a := turn{Role: "assistant", Content: []string{"", "a", "bb", "\n", ":x", "assistant"}[r.IntN(6)]}
			if r.IntN(3) == 0 {
				a.Reason = fmt.Sprint("because ", r.IntN(2))
			}
			c = append(c, a, turn{Role: []string{"user", "tool"}[r.IntN(2)], Content: fmt.Sprint(r.IntN(5))})
		}
		talks[at] = c
		k := chatKey(t, "", c)
		truth := render(c)
		ids, whole := m.Tokens(k)
		if whole && !slices.Equal(ids, truth) || len(ids) > len(truth) || !slices.Equal(ids, truth[:len(ids)]) {
			t.Errorf("%v: %v (whole: %v), truth %v", c, ids, whole, truth)
			return
		}
		total += len(truth)
		known += len(ids)
		switch {
		case whole:
			wholes++
		case ids != nil:
			prefixes++
		}
		if r.IntN(4) > 0 {
			// What the model says need not be what the client sends back, nor in the
			// tokens that its text is split into.
			m.Learn(k, truth, append(pairs(nil, []string{"a", "bb", "cc"}[r.IntN(3)]), 4))
		}
	}
	if s := m.Stats(); s.Contradicted != 0 {
		t.Errorf("%d contradictions in a template that has none", s.Contradicted)
	}
	return wholes, prefixes, known, total
}

// TestMemoThirdPrompt: the third prompt of a conversation is the first that
// begins with known ids, up to the end of the first reply where its own ids were
// seen to come back.
func TestMemoThirdPrompt(t *testing.T) {
	m := newMemo(t, Config{})
	render := templates["marks"]
	c := []turn{{Role: "user", Content: "aaaa"}}
	m.Learn(chatKey(t, "", c), render(c), append(pairs(nil, "reply"), 4))
	c = append(c, turn{Role: "assistant", Content: "reply"}, turn{Role: "user", Content: "bb"})
	if ids, _ := m.Tokens(chatKey(t, "", c)); ids != nil {
		t.Fatalf("nothing can be known of the second: %v", ids)
	}
	m.Learn(chatKey(t, "", c), render(c), nil)
	upTo := c[:2]
	c = append(c, turn{Role: "assistant", Content: "more"}, turn{Role: "user", Content: "cc"})
	ids, whole := m.Tokens(chatKey(t, "", c))
	want := render(upTo)
	// without what opens the reply, and the end of a turn's second half
	want = want[:len(want)-len(pairs(nil, "assistant"))-3]
	if whole || !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
	if ids, _ := m.Tokens(chatKey(t, `,"tools":[{"a":1}]`, c)); ids != nil {
		t.Errorf("with tools: %v", ids)
	}
	if ids, _ := m.Tokens(chatKey(t, `,"chat_template_kwargs":{"enable_thinking":false}`, c)); ids != nil {
		t.Errorf("with other arguments: %v", ids)
	}
	// It ends with the turn that makes the boundary: it may be rendered open.
	if ids, _ := m.Tokens(chatKey(t, "", c[:2])); ids != nil {
		t.Errorf("at the boundary: %v", ids)
	}
	// Another message after the boundary: another boundary.
	other := []turn{c[0], {Role: "assistant", Content: "reply!"}, {Role: "user", Content: "bb"}}
	if ids, _ := m.Tokens(chatKey(t, "", other)); ids != nil {
		t.Errorf("another reply: %v", ids)
	}
}

// TestMemoOpenOutput: an output that may have gone on behind its own end is
// not counted in.
func TestMemoOpenOutput(t *testing.T) {
	render := templates["marks"]
	for beside, want := range map[string]bool{"": true, `,"ignore_eos":true`: false, `,"n":2`: false, `,"n":1`: true,
		`,"ignore_eos":false`: true} {
		m := newMemo(t, Config{})
		c := []turn{{Role: "user", Content: "aaaa"}}
		first := render(c)
		m.Learn(chatKey(t, beside, c), first, append(pairs(nil, "reply"), 4))
		c = append(c, turn{Role: "assistant", Content: "reply"}, turn{Role: "user", Content: "bb"})
		m.Learn(chatKey(t, beside, c), render(c), nil)
		c = append(c, turn{Role: "assistant", Content: "more"}, turn{Role: "user", Content: "cc"})
		if ids, _ := m.Tokens(chatKey(t, beside, c)); (len(ids) > len(first)) != want || len(ids) < len(first) {
			t.Errorf("%s: %d ids are known, the first prompt has %d", beside, len(ids), len(first))
		}
	}
}

// TestMemoContradiction: ids that contradict what is known end the trust in
// their setting, in nothing else, and for a time.
func TestMemoContradiction(t *testing.T) {
	now := time.Unix(1000, 0)
	told := 0
	m := newMemo(t, Config{Now: func() time.Time { return now }, Contradicted: func() { told++ }})
	render := templates["marks"]
	teach := func(beside string, day uint32) []turn {
		var c []turn
		for i := range 3 {
			if i > 0 {
				c = append(c, turn{Role: "assistant", Content: "ok"})
			}
			c = append(c, turn{Role: "user", Content: fmt.Sprint(i)})
			ids := render(c)
			ids[0] = day
			m.Learn(chatKey(t, beside, c), ids, nil)
		}
		return append(c, turn{Role: "assistant", Content: "ok"}, turn{Role: "user", Content: "more"})
	}
	c := teach("", 1)
	teach(`,"tools":[1]`, 1)
	knows := func(beside string) bool {
		ids, _ := m.Tokens(chatKey(t, beside, c))
		return ids != nil
	}
	if !knows("") || !knows(`,"tools":[1]`) {
		t.Fatal("nothing is known")
	}
	teach("", 2) // the template has a date in it, and it is tomorrow
	if knows("") || !knows(`,"tools":[1]`) || told != 1 {
		t.Errorf("known %v, with another setting %v, told %d times", knows(""), knows(`,"tools":[1]`), told)
	}
	if !m.Suspect(chatKey(t, "", c)) || m.Suspect(chatKey(t, `,"tools":[1]`, c)) {
		t.Error("suspected")
	}
	now = now.Add(11 * time.Minute)
	teach("", 2)
	if !knows("") || told != 1 {
		t.Errorf("after the quarantine: known %v, told %d times", knows(""), told)
	}
	// A prefix that was given away, and a longer prompt that does not begin with it.
	longer := render(c)
	longer[0], longer[3] = 2, 99
	m.Learn(chatKey(t, "", c), longer, nil)
	if knows("") || told != 2 {
		t.Errorf("a wrong prefix: known %v, told %d times", knows(""), told)
	}
	now = now.Add(11 * time.Minute)
	teach("", 2)
	m.Contradict(chatKey(t, "", c))
	if knows("") || told != 3 {
		t.Errorf("told from outside: known %v, told %d times", knows(""), told)
	}
	if s := m.Stats(); s.Contradicted != 3 {
		t.Errorf("%+v", s)
	}
	teach(`,"tools":[1]`, 1)
	m.Forget()
	if s := m.Stats(); knows(`,"tools":[1]`) || m.Suspect(chatKey(t, "", c)) || s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("forgotten: %+v", s)
	}
	teach("", 3) // no contradiction with the forgotten ids
	if !knows("") || told != 3 {
		t.Errorf("after Forget: known %v, told %d times", knows(""), told)
	}
}

// TestMemoSources: the ids of each source are believed separately, and if they
// disagree, the ids of most of them count.
func TestMemoSources(t *testing.T) {
	m := newMemo(t, Config{})
	k := chatKey(t, "", []turn{{Role: "user", Content: "x"}})
	ids := func(k Key) []uint32 {
		ids, _ := m.Tokens(k)
		return ids
	}
	m.Learn(k.Of("a"), []uint32{1, 2}, nil)
	if !slices.Equal(ids(k), []uint32{1, 2}) || ids(k.Of("b")) != nil || !slices.Equal(ids(k.Of("a")), []uint32{1, 2}) {
		t.Errorf("of one: %v, %v", ids(k), ids(k.Of("b")))
	}
	m.Learn(k.Of("b"), []uint32{1, 3}, nil)
	if ids(k) != nil || !slices.Equal(ids(k.Of("a")), []uint32{1, 2}) || !slices.Equal(ids(k.Of("b")), []uint32{1, 3}) {
		t.Errorf("two that do not agree: %v", ids(k))
	}
	m.Learn(k.Of("c"), []uint32{1, 2}, nil)
	if !slices.Equal(ids(k), []uint32{1, 2}) {
		t.Errorf("most agree: %v", ids(k))
	}
	// One that contradicts itself is not believed, the others are.
	m.Learn(k.Of("b"), []uint32{1, 4}, nil)
	if !m.Suspect(k.Of("b")) || m.Suspect(k.Of("a")) || ids(k.Of("b")) != nil || !slices.Equal(ids(k), []uint32{1, 2}) {
		t.Errorf("of the others: %v", ids(k))
	}
	// Another engine's count alone contradicts nobody, two of them do, and the source's own at once.
	for range 3 {
		if m.Counted(k, "liar", 2, 9) {
			t.Error("9 is 2")
		}
	}
	if m.Suspect(k.Of("a")) || m.Suspect(k.Of("c")) {
		t.Error("one engine's count took the ids of others")
	}
	if m.Counted(k.Of("c"), "d", 2, 9); !m.Suspect(k.Of("c")) || m.Suspect(k.Of("a")) {
		t.Error("two engines' counts")
	}
	if m.Counted(k, "a", 2, 9); !m.Suspect(k.Of("a")) || ids(k) != nil {
		t.Error("the source's own count")
	}
	if !m.Counted(k, "a", 2, 2) {
		t.Error("2 is not 2")
	}
	for i := range 3 * maxSources {
		m.Learn(k.Of(fmt.Sprint("source ", i)), []uint32{7}, nil)
	}
	if n := len(m.sources[place{at: k.whole()}]); n > maxSources {
		t.Errorf("%d sources of one prompt", n)
	}
}

// TestMemoSalt: a caller with another salt, adapter or extra key learns nothing of
// earlier requests.
func TestMemoSalt(t *testing.T) {
	m := newMemo(t, Config{})
	c := []turn{{Role: "user", Content: "a secret"}}
	scopes := []string{``, `,"cache_salt":"a"`, `,"cache_salt":"b"`, `,"extra_key":"a"`, `,"lora_path":"a"`,
		`,"cache_salt":"a","extra_key":"a"`}
	for i, scope := range scopes {
		m.Learn(chatKey(t, scope, c), []uint32{uint32(i)}, nil)
		for j, other := range scopes {
			if ids, _ := m.Tokens(chatKey(t, other, c)); (ids != nil) != (j <= i) || ids != nil && ids[0] != uint32(j) {
				t.Errorf("%q after %q: %v", other, scope, ids)
			}
		}
	}
	if s := m.Stats(); s.Contradicted != 0 {
		t.Errorf("%+v", s)
	}
	plain := chatKey(t, "", c)
	if k := chatKey(t, `,"cache_salt":null`, c); k.whole() != plain.whole() || !chatKey(t, `,"cache_salt":"a"`, c).Plain {
		t.Error("no salt is one, or a salt changes the prompt")
	}
}

// TestMemoBounds: never more entries or bytes than allowed, and what is used
// stays.
func TestMemoBounds(t *testing.T) {
	m := newMemo(t, Config{MaxEntries: 10, MaxBytes: 4096})
	hot := chatKey(t, "", []turn{{Role: "user", Content: "hot"}})
	m.Learn(hot, []uint32{1, 2, 3}, nil)
	for i := range 200 {
		m.Learn(chatKey(t, "", []turn{{Role: "user", Content: fmt.Sprint(i)}}), make([]uint32, 1+i%300), nil)
		if ids, _ := m.Tokens(hot); len(ids) != 3 {
			t.Fatal("what is used is gone")
		}
		if s := m.Stats(); s.Entries > 10 || s.Bytes > 4096 || s.Entries < 1 {
			t.Fatalf("%+v", s)
		}
	}
	big := chatKey(t, "", []turn{{Role: "user", Content: "big"}})
	m.Learn(big, make([]uint32, 1200), nil)
	if ids, _ := m.Tokens(big); ids != nil {
		t.Error("what is larger than all was kept")
	}
	for i := range 2 * maxQuarantined {
		m.Contradict(chatKey(t, fmt.Sprintf(`,"seed2":%d`, i), []turn{{Role: "user"}}))
	}
	if len(m.suspect) > maxQuarantined {
		t.Errorf("%d settings are suspected", len(m.suspect))
	}
}

func TestConfig(t *testing.T) {
	for field, c := range map[string]Config{
		"MaxEntries": {MaxEntries: -1}, "MaxBytes": {MaxBytes: -1}, "MaxTail": {MaxTail: -1}, "Quarantine": {Quarantine: -1},
	} {
		_, err := New(c)
		var bad *router.ConfigError
		if !errors.As(err, &bad) || bad.Field != field || !strings.HasPrefix(err.Error(), "tokenmemo: "+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	m := newMemo(t, Config{})
	m.Learn(Key{}, []uint32{1}, nil)
	if ids, _ := m.Tokens(Key{}); ids != nil {
		t.Error("the zero key knows something")
	}
}

// TestMemoRace: many at once, and still never a wrong id.
func TestMemoRace(t *testing.T) {
	m := newMemo(t, Config{MaxEntries: 50})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { play(t, rand.New(rand.NewPCG(uint64(i), 1)), templates["marks"], m, 300) })
	}
	wg.Wait()
}

// FuzzMemo looks for a conversation and a template with a wrong answer.
func FuzzMemo(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		for _, render := range templates {
			play(t, rand.New(rand.NewPCG(a, b)), render, newMemo(t, Config{MaxEntries: 1 + int(a%64)}), 60)
		}
	})
}
