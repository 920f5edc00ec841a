package prompt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

func memory(t testing.TB, limit int64) *membudget.Account {
	t.Helper()
	b, err := membudget.New(membudget.Config{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return b.Account("test")
}

// TestWithin: a prompt is the same as without a bound, its bytes are held, and one that does not fit takes nothing.
func TestWithin(t *testing.T) {
	const path = "/v1/chat/completions"
	for _, n := range []int{0, 10, 1000, 100_000} {
		body := []byte(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", n)))
		want, err := prompt.FromRequest(path, nil, body)
		if err != nil {
			t.Fatal(err)
		}
		a := memory(t, int64(len(body))+1000)
		h := a.Hold()
		got, err := prompt.Parser{}.Within(&h, path, nil, body)
		if err != nil || got.Text != want.Text || h.Bytes() != prompt.Size(got) || a.Used() != h.Bytes() ||
			h.Bytes() < int64(len(got.Text)) {
			t.Errorf("%d bytes: %v, %d held, %d used", n, err, h.Bytes(), a.Used())
		}
		again := a.Hold()
		if err := again.Set(7); err != nil {
			t.Fatal(err)
		}
		_, err = prompt.Parser{}.Within(&again, path, nil, bytes.Repeat(body, 2))
		if want := n >= 1000; errors.Is(err, membudget.ErrShed) != want || want && again.Bytes() != 7 {
			t.Errorf("%d bytes more: %v, %d held", n, err, again.Bytes())
		}
		again.Release()
		h.Release()
		if a.Used() != 0 {
			t.Errorf("%d are left", a.Used())
		}
	}
	// Ids take more than their body.
	ids := []byte(`{"prompt":[` + strings.Repeat("1,", 10_000) + `1]}`)
	h := memory(t, 30_000).Hold()
	var shed *membudget.Error
	p, err := prompt.Parser{}.Within(&h, "/v1/completions", http.Header{}, ids)
	if !errors.As(err, &shed) || !shed.Never || len(p.Tokens) > 0 || h.Bytes() != 0 {
		t.Errorf("%v, %d ids, %d held", err, len(p.Tokens), h.Bytes())
	}
}

// largeReplies are of all forms, with a large part in each that the parser keeps.
func largeReplies(n int) map[string]string {
	long := strings.Repeat("word ", n/5)
	return map[string]string{
		"object": `{"choices":[{"message":{"content":"` + long + `"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`,
		"array":  `[` + strings.Repeat(`{"meta_info":{"prompt_tokens":1}},`, n/30) + `{}]`,
		"one event": `data: {"choices":[{"delta":{"content":"` + long + `"}}]}` + "\n\n" +
			`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n",
		"events": strings.Repeat(`data: {"choices":[{"delta":{"content":"`+long[:20]+`"}}]}`+"\n\n", n/20) +
			`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n",
		"lines": strings.Repeat(`data: 1`+"\n", n/8) + "\n",
		"calls": strings.Repeat(`data: {"choices":[{"delta":{"tool_calls":[{"index":255,"function":{"name":"f","arguments":"`+
			long[:20]+`"}}]}}]}`+"\n\n", n/20) + "data: [DONE]\n\n",
		"no end": `data: {"choices":[{"delta":{"content":"` + long,
	}
}

// TestReplyMemory: with memory a reply is learned as without a bound; without, it is passed by all the same, and never
// takes more than there is. What was taken is given back.
func TestReplyMemory(t *testing.T) {
	for name, text := range largeReplies(300_000) {
		var want prompt.Reply
		for _, limit := range []int64{1, 1000, 10_000, 100_000, 400_000, 10 << 20} {
			a := memory(t, limit)
			rng := rand.New(rand.NewPCG(uint64(limit), 1))
			r := prompt.Reply{Memory: a}
			want = prompt.Reply{}
			for at := 0; at < len(text); {
				n := min(rng.IntN(5000)+1, len(text)-at)
				r.Write([]byte(text[at : at+n]))
				want.Write([]byte(text[at : at+n]))
				if at += n; a.Used() > limit {
					t.Fatalf("%s: %d of %d are used", name, a.Used(), limit)
				}
			}
			got, full := r.Outcome(200, http.Header{}), want.Outcome(200, http.Header{})
			if got.Stage == router.Failed && full.Stage != router.Failed {
				t.Errorf("%s with %d bytes is an error: %v", name, limit, got.Err)
			}
			if !strings.HasPrefix(full.Reply, got.Reply) {
				t.Errorf("%s with %d bytes has another text", name, limit)
			}
			if limit > 5<<20 && (got.Reply != full.Reply || got.PromptTokens != full.PromptTokens) {
				t.Errorf("%s with enough memory: %+v, want %+v", name, got, full)
			}
			if name != "no end" && name != "calls" && limit < 10_000 && got.PromptTokens != full.PromptTokens &&
				name != "array" {
				t.Errorf("%s with %d bytes: %d tokens, want %d", name, limit, got.PromptTokens, full.PromptTokens)
			}
			r.Close()
			r.Close()
			if a.Used() != 0 {
				t.Errorf("%s: %d are left", name, a.Used())
			}
		}
	}
}

// BenchmarkReplyMemory is BenchmarkReply's stream with an account and without.
func BenchmarkReplyMemory(b *testing.B) {
	text := []byte(largeReplies(4000)["events"])
	a := memory(b, 1<<30)
	for name, account := range map[string]*membudget.Account{"none": nil, "account": a} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r := prompt.Reply{Memory: account}
				for at := 0; at < len(text); at += 180 {
					r.Write(text[at:min(at+180, len(text))])
				}
				r.Close()
			}
		})
	}
}

// BenchmarkWithin compares Within with FromRequest.
func BenchmarkWithin(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("some words ", 400) + `"}]}`)
	a := memory(b, 1<<30)
	b.Run("FromRequest", func(b *testing.B) {
		for b.Loop() {
			if _, err := prompt.FromRequest("/v1/chat/completions", nil, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Within", func(b *testing.B) {
		for b.Loop() {
			h := a.Hold()
			if _, err := (prompt.Parser{}).Within(&h, "/v1/chat/completions", nil, body); err != nil {
				b.Fatal(err)
			}
			h.Release()
		}
	})
}

func ExampleSize() {
	p, err := prompt.FromCompletion([]byte(`{"prompt":"0123456789"}`))
	fmt.Println(prompt.Size(p), err)
	// Output: 10 <nil>
}

func ExampleParser_Within() {
	b, err := membudget.New(membudget.Config{Limit: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	hold := b.Account(membudget.Prompts).Hold()
	defer hold.Release() // when the request has ended
	p, err := prompt.Parser{}.Within(&hold, "/v1/completions", nil, []byte(`{"prompt":"0123456789"}`))
	fmt.Println(p.Text, err, hold.Bytes())
	// Output: 0123456789 <nil> 10
}
