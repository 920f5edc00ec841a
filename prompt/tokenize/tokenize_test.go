package tokenize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/prompt/tokenmemo"
	"github.com/warmroute/router/vllmtest"
)

const (
	chatPath = "/v1/chat/completions"
	textPath = "/v1/completions"
)

func chat(text string) []byte {
	return []byte(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":3}`, text))
}

func newClient(t testing.TB, c Config, targets ...string) *Client {
	t.Helper()
	if c.Targets == nil {
		c.Targets = func() []string { return targets }
	}
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func serve(t testing.TB, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func ids(w http.ResponseWriter, ids ...uint32) {
	json.NewEncoder(w).Encode(map[string]any{"count": len(ids), "max_model_len": 100, "tokens": ids, "token_strs": nil})
}

// TestAgainstEngine: the ids are those that the engine computes for the request
// itself, and the second time nobody is asked.
func TestAgainstEngine(t *testing.T) {
	s := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6})
	defer s.Close()
	c := newClient(t, Config{}, s.URL)
	for _, r := range []struct{ path, body string }{
		{chatPath, `{"messages":[{"role":"user","content":"What is the weather?"}],"max_tokens":3}`},
		{chatPath, `{"messages":[{"role":"system","content":"x"},{"role":"user","content":[{"type":"text","text":"y"}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}]}`},
		{textPath, `{"prompt":"What is the weather?","max_tokens":3}`},
		{textPath, `{"prompt":"What is the weather?","add_special_tokens":false,"max_tokens":3}`},
	} {
		resp, err := s.Client().Post(s.URL+r.path, "application/json",
			strings.NewReader(strings.Replace(r.body, "{", `{"return_token_ids":true,`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		var reply tokenmemo.Reply
		_, err = io.Copy(&reply, resp.Body)
		resp.Body.Close()
		want, _ := reply.Tokens()
		if err != nil || len(want) == 0 {
			t.Fatalf("%s: %v", r.body, err)
		}
		for range 2 {
			got, err := c.Tokens(t.Context(), r.path, nil, []byte(r.body))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v; want %v", r.body, got, err, want)
			}
		}
	}
	if st := c.Stats(); st.Asked != 4 || st.Remembered != 4 {
		t.Errorf("%+v", st)
	}
}

// TestQuestion: what decides about the prompt is passed on as it is, and nothing
// else is sent.
func TestQuestion(t *testing.T) {
	var got string
	var header http.Header
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, header = r.Method+" "+r.URL.Path+" "+string(b), r.Header
		ids(w, 1)
	})
	c := newClient(t, Config{}, url+"/base/")
	h := http.Header{"Authorization": {"Bearer k"}, "X-Api-Key": {"a"}, "Cookie": {"c"}, "X-Session-Id": {"s"}}
	for _, r := range []struct{ path, body, want string }{
		{chatPath, `{"stream":true,"continue_final_message":true, "add_generation_prompt":false,"chat_template_kwargs":{"a": 1},"chat_template":"t","tools":[ 1],"messages":[{"role":"user","content":"\u0078"}],"model":"m","add_special_tokens":true,"temperature":1,"user":"u"}`,
			`{"model":"m","messages":[{"role":"user","content":"\u0078"}],"tools":[ 1],"chat_template":"t","chat_template_kwargs":{"a": 1},"add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":true}`},
		{chatPath, `{"tools":null,"messages":[{"role":"user","content":"x"}]}`,
			`{"messages":[{"role":"user","content":"x"}]}`},
		{chatPath, `{"tool_choice":"auto","add_generation_prompt":true,"messages":[{"role":"user","content":"x"}]}`,
			`{"messages":[{"role":"user","content":"x"}]}`},
		{textPath, `{"max_tokens":1,"prompt":"x","model":"m","add_special_tokens":false}`,
			`{"model":"m","prompt":"x","add_special_tokens":false}`},
	} {
		if _, err := c.Tokens(t.Context(), r.path, h, []byte(r.body)); err != nil {
			t.Fatal(err)
		}
		if want := "POST /base/tokenize " + r.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if header.Get("Authorization") != "Bearer k" || header.Get("X-Api-Key") != "a" || header.Get("Cookie") != "" ||
			header.Get("X-Session-Id") != "" {
			t.Errorf("headers %v", header)
		}
	}
}

// TestNotExact: what /tokenize would render in another way is not asked for.
func TestNotExact(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was asked for") })
	c := newClient(t, Config{MaxBody: 200}, url)
	for _, r := range []struct {
		path, body string
		want       error
	}{
		{"/v1/messages", `{"messages":[{"role":"user","content":"x"}]}`, ErrNotExact},
		{"/v1/responses", `{"input":"x"}`, ErrNotExact},
		{chatPath, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]}`,
			ErrNotExact},
		{chatPath, `{"documents":[{}],"messages":[{"role":"user","content":"x"}]}`, ErrNotExact},
		{chatPath, `{"reasoning_effort":"low","messages":[{"role":"user","content":"x"}]}`, ErrNotExact},
		{chatPath, `{"mm_processor_kwargs":{"a":1},"messages":[{"role":"user","content":"x"}]}`, ErrNotExact},
		{chatPath, `{"truncate_prompt_tokens":5,"messages":[{"role":"user","content":"x"}]}`, ErrNotExact},
		{textPath, `{"prompt":["x","y"]}`, ErrNotExact},
		{chatPath, `{`, ErrNotExact},
		{chatPath, string(chat(strings.Repeat("x", 200))), ErrTooLarge},
	} {
		if got, err := c.Tokens(t.Context(), r.path, nil, []byte(r.body)); !errors.Is(err, r.want) || got != nil {
			t.Errorf("%s: %v, %v", r.body, got, err)
		}
	}
	if st := c.Stats(); st.NotExact != 9 || st.TooLarge != 1 {
		t.Errorf("%+v", st)
	}
}

// TestBadSources: whatever a source does, there are no ids, it is reported once,
// and it is not asked again before its time.
func TestBadSources(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name string
		f    http.HandlerFunc
		url  string
	}{
		{"down", nil, "http://" + closed.Addr().String()},
		{"denied", nil, "http://169.254.169.254"},
		{"no URL", nil, "ftp://x"},
		{"hangs", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}, ""},
		{"hangs in its answer", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, `{"count":1,`)
			w.(http.Flusher).Flush()
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}, ""},
		{"breaks off", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"count":1,"tokens":[1]}`)
		}, ""},
		{"no such route", say(404, `{"detail":"Not Found"}`), ""},
		{"no such route, another engine", say(404, "404 page not found"), ""},
		{"method", say(405, `{"detail":"Method Not Allowed"}`), ""},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}, ""},
		{"server error", say(500, `{"error":{"message":"oops"}}`), ""},
		{"busy", say(503, ``), ""},
		{"too many", say(429, ``), ""},
		{"empty", say(200, ``), ""},
		{"not JSON", say(200, `<html>`), ""},
		{"another shape", say(200, `{"tokens":{"ids":[1]},"count":1}`), ""},
		{"no tokens", say(200, `{"count":0}`), ""},
		{"null tokens", say(200, `{"count":0,"tokens":null}`), ""},
		{"empty tokens", say(200, `{"count":0,"tokens":[]}`), ""},
		{"wrong count", say(200, `{"count":3,"tokens":[1,2]}`), ""},
		{"no count", say(200, `{"tokens":[1,2]}`), ""},
		{"negative id", say(200, `{"count":1,"tokens":[-1]}`), ""},
		{"33 bits", say(200, `{"count":1,"tokens":[4294967296]}`), ""},
		{"fraction", say(200, `{"count":1,"tokens":[1.5]}`), ""},
		{"null id", say(200, `{"count":2,"tokens":[1,null]}`), ""},
		{"strings", say(200, `{"count":1,"tokens":["1"]}`), ""},
		{"of several prompts", say(200, `{"count":[1],"tokens":[[1]]}`), ""},
		{"too long", say(200, `{"count":1,"tokens":[1]}`+strings.Repeat(" ", 5000)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked, told atomic.Int32
			url := c.url
			if c.f != nil {
				url = serve(t, func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					c.f(w, r)
				})
			}
			client := newClient(t, Config{
				Timeout: 300 * time.Millisecond, MaxReply: 4096, MinBackoff: time.Hour, MaxBackoff: time.Hour,
				Trace: Trace{Changed: func(target, kind string, err error) {
					if target != url || kind != "chat" || !errors.Is(err, ErrFailed) {
						t.Errorf("told %s, %s, %v", target, kind, err)
					}
					told.Add(1)
				}},
			}, url)
			for i := range 5 {
				want := ErrNoTarget
				if i == 0 {
					want = ErrFailed
				}
				if got, err := client.Tokens(t.Context(), chatPath, nil, chat(fmt.Sprint(i))); got != nil || !errors.Is(err, want) {
					t.Errorf("request %d: %v, %v", i, got, err)
				}
			}
			if c.f != nil && asked.Load() != 1 || told.Load() != 1 {
				t.Errorf("asked %d times, told %d times", asked.Load(), told.Load())
			}
			if st := client.Stats(); st.Failed != 1 || st.NoTarget != 4 || st.Failures != 1 || st.Failing != 1 || st.Asked != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestComesBack: after its backoff one prompt asks a failed source again; when it
// answers it is reported, and all callers use it.
func TestComesBack(t *testing.T) {
	var bad atomic.Bool
	var asked atomic.Int32
	bad.Store(true)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if bad.Load() {
			w.WriteHeader(500)
			return
		}
		ids(w, 1, 2)
	})
	var mu sync.Mutex
	var told []bool
	c := newClient(t, Config{MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond, Timeout: 10 * time.Second,
		Trace: Trace{Changed: func(_, _ string, err error) {
			mu.Lock()
			told = append(told, err == nil)
			mu.Unlock()
		}}}, url)
	n := 0
	try := func() error {
		n++
		_, err := c.Tokens(t.Context(), chatPath, nil, chat(fmt.Sprint(n)))
		return err
	}
	for asked.Load() < 5 {
		if try() == nil {
			t.Fatal("ids from a failing source")
		}
	}
	bad.Store(false)
	for deadline := time.Now().Add(10 * time.Second); try() != nil; {
		if time.Now().After(deadline) {
			t.Fatal("it did not come back")
		}
	}
	if err := try(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(told, []bool{false, true}) || c.Stats().Failing != 0 {
		t.Errorf("told %v; %+v", told, c.Stats())
	}
}

// TestAnotherTarget: if one fails, another answers, and from then on the first
// costs nothing.
func TestAnotherTarget(t *testing.T) {
	var bad, good atomic.Int32
	one := serve(t, func(w http.ResponseWriter, r *http.Request) { bad.Add(1); w.WriteHeader(500) })
	two := serve(t, func(w http.ResponseWriter, r *http.Request) { good.Add(1); ids(w, 7) })
	c := newClient(t, Config{MinBackoff: time.Hour, MaxBackoff: time.Hour}, one, two)
	for i := range 20 {
		if got, err := c.Tokens(t.Context(), chatPath, nil, chat(fmt.Sprint(i))); err != nil ||
			!slices.Equal(got, []uint32{7}) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if bad.Load() != 1 || good.Load() != 20 {
		t.Errorf("the bad one was asked %d times, the good one %d times", bad.Load(), good.Load())
	}
}

// TestRefusals: a request that an engine refuses is its own fault, unless the engine
// has refused all of its kind.
func TestRefusals(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(b), "messages"): // as one that takes texts alone
			w.WriteHeader(422)
		case strings.Contains(string(b), "unknown"):
			w.WriteHeader(404)
			io.WriteString(w, `{"object":"error","message":"The model does not exist."}`)
		default:
			ids(w, 1)
		}
	})
	c := newClient(t, Config{MinBackoff: time.Hour, MaxBackoff: time.Hour}, url)
	text := func(s string) error {
		_, err := c.Tokens(t.Context(), textPath, nil, []byte(fmt.Sprintf(`{"prompt":%q}`, s)))
		return err
	}
	if err := text("a"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * refusalsToFail {
		if err := text(fmt.Sprint("unknown", i)); !errors.Is(err, ErrRefused) {
			t.Fatalf("refusal %d: %v", i, err)
		}
	}
	for i := range 3 * refusalsToFail {
		want := ErrRefused
		if i >= refusalsToFail {
			want = ErrNoTarget
		}
		if _, err := c.Tokens(t.Context(), chatPath, nil, chat(fmt.Sprint(i))); !errors.Is(err, want) {
			t.Fatalf("chat %d: %v", i, err)
		}
	}
	if err := text("b"); err != nil {
		t.Error(err)
	}
}

// TestContradiction: an engine that counts other tokens than its /tokenize gives is
// not believed for a while, reported, and not requested.
func TestContradiction(t *testing.T) {
	var asked, told atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); ids(w, 1, 2) })
	c := newClient(t, Config{Trace: Trace{Contradicted: func(given, counted int) {
		if given != 2 || counted != 5 {
			t.Errorf("%d, %d", given, counted)
		}
		told.Add(1)
	}}}, url)
	key, _ := tokenmemo.NewKey(chatPath, chat("x"))
	if _, err := c.TokensOf(t.Context(), key, nil, chat("x")); err != nil {
		t.Fatal(err)
	}
	c.Reported(key, 2, 2)
	c.Reported(key, 2, 0) // not reported
	c.Reported(key, 2, 5)
	for _, s := range []string{"x", "y"} {
		if got, err := c.Tokens(t.Context(), chatPath, nil, chat(s)); !errors.Is(err, ErrContradicted) {
			t.Errorf("%v, %v", got, err)
		}
	}
	other := []byte(strings.Replace(string(chat("x")), `"m"`, `"other"`, 1))
	if _, err := c.Tokens(t.Context(), chatPath, nil, other); err != nil {
		t.Errorf("another model: %v", err)
	}
	if asked.Load() != 2 || told.Load() != 1 || c.Stats().Mismatches != 1 {
		t.Errorf("asked %d, told %d; %+v", asked.Load(), told.Load(), c.Stats())
	}
}

// TestTooManyIDs: no more ids are read or believed than the body has bytes. A few more may be a chat template's, and
// blame nobody.
func TestTooManyIDs(t *testing.T) {
	for _, c := range []struct {
		name    string
		ids     int
		failing int
	}{{"a template's", 500, 0}, {"many", 1 << 14, 1}, {"without an end", 4 << 20, 1}} {
		t.Run(c.name, func(t *testing.T) {
			var sent atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				fmt.Fprintf(w, `{"count":%d,"tokens":[1`, c.ids)
				for range c.ids - 1 {
					if n, err := io.WriteString(w, ",1234567"); err != nil {
						return
					} else {
						sent.Add(int64(n))
					}
				}
				io.WriteString(w, `]}`)
			})
			client := newClient(t, Config{MinBackoff: time.Hour, MaxBackoff: time.Hour, Timeout: time.Minute}, url)
			ids, err := client.Tokens(t.Context(), chatPath, nil, chat("word"))
			if ids != nil || !errors.Is(err, ErrFailed) {
				t.Errorf("%d ids, %v", len(ids), err)
			}
			if s := client.Stats(); s.Failing != c.failing || s.Failed != 1 {
				t.Errorf("%+v", s)
			}
			if n := sent.Load(); n > 16<<20 {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
	if _, err := read(t.Context(), []byte(`{"count":3,"tokens":[1,2,3]}`), 2); !errors.Is(err, errTemplate) {
		t.Errorf("more ids than bytes: %v", err)
	}
	if ids, err := read(t.Context(), []byte(`{"count":2,"tokens":[1,2]}`), 2); err != nil || len(ids) != 2 {
		t.Errorf("as many ids as bytes: %v, %v", ids, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	long := []byte(`{"count":1,"tokens":[1` + strings.Repeat(",1", 1<<20) + `]}`)
	if _, err := read(ctx, long, len(long)); !errors.Is(err, context.Canceled) {
		t.Errorf("after its time: %v", err)
	}
}

// TestMaxBody: a body over MaxBody is not looked at.
func TestMaxBody(t *testing.T) {
	c := newClient(t, Config{MaxBody: 100}, "http://127.0.0.1:1")
	body := []byte(strings.Repeat("[", 101))
	if _, err := c.Tokens(t.Context(), chatPath, nil, body); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := c.TokensOf(t.Context(), tokenmemo.Key{Plain: true}, nil, body); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// TestNoTarget: the error is the router's too.
func TestNoTarget(t *testing.T) {
	c := newClient(t, Config{Targets: func() []string { return nil }})
	_, err := c.Tokens(t.Context(), chatPath, nil, chat("x"))
	if !errors.Is(err, ErrNoTarget) || !errors.Is(err, router.ErrNoTarget) {
		t.Error(err)
	}
}

// TestPerSource: the ids of each of four engines are believed apart. One that counts wrongly takes
// no ids from requests with ids from others, and one that gives wrong ids is believed for its own
// conversations alone.
func TestPerSource(t *testing.T) {
	var urls []string
	for i := range 4 {
		urls = append(urls, serve(t, func(w http.ResponseWriter, r *http.Request) { ids(w, uint32(i), 7) }))
	}
	c := newClient(t, Config{Timeout: time.Minute}, urls...)
	liar := urls[3]
	of := map[uint32]int{}
	for i := range 400 {
		body := chat(fmt.Sprint("conversation ", i))
		key, _ := tokenmemo.NewKey(chatPath, body)
		got, err := c.TokensOf(t.Context(), key, nil, body)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		of[got[0]]++
		again, err := c.TokensOf(t.Context(), key, nil, body)
		if err != nil || !slices.Equal(got, again) {
			t.Fatalf("request %d: %v, then %v, %v", i, got, again, err)
		}
		c.ReportedBy(liar, key, 2, 5)
	}
	if of[3] > 1 {
		t.Errorf("one that contradicts itself is believed: %v", of)
	}
	for i := range uint32(3) {
		if of[i] < 60 {
			t.Errorf("engine %d gave the ids of %d conversations: %v", i, of[i], of)
		}
	}
	if s := c.Stats(); s.Contradicted != 0 || s.Asked != 400 || s.Remembered != 400 {
		t.Errorf("%+v", s)
	}
	// A second engine that counts otherwise does.
	body := chat("conversation 0")
	key, _ := tokenmemo.NewKey(chatPath, body)
	for _, u := range urls {
		if _, err := c.TokensOf(t.Context(), key, nil, body); err != nil {
			break
		}
		c.ReportedBy(u, key, 2, 5)
	}
	if _, err := c.TokensOf(t.Context(), key, nil, body); !errors.Is(err, ErrContradicted) {
		t.Errorf("all count otherwise: %v", err)
	}
}

// TestDisagree: two engines that give other ids for the same prompt.
func TestDisagree(t *testing.T) {
	var n atomic.Uint32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { ids(w, n.Add(1)) })
	memo, err := tokenmemo.New(tokenmemo.Config{MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, Config{Memo: memo, Concurrent: 8}, url)
	var wg sync.WaitGroup
	for range 8 { // at once, so that the memo does not answer
		wg.Go(func() { c.Tokens(context.Background(), chatPath, nil, chat("x")) })
	}
	wg.Wait()
	if st := c.Stats(); n.Load() > 1 && memo.Stats().Contradicted == 0 {
		t.Errorf("asked %d times; %+v", n.Load(), st)
	}
}

// TestConcurrent: no more are asked for at once than allowed, and who waits too long
// goes without.
func TestConcurrent(t *testing.T) {
	var now, most atomic.Int32
	leave := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-leave
		ids(w, 1)
	})
	c := newClient(t, Config{Concurrent: 2, Timeout: 5 * time.Second}, url)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if _, err := c.Tokens(context.Background(), chatPath, nil, chat(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	for now.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.Tokens(ctx, chatPath, nil, chat("third")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(leave)
	wg.Wait()
	if most.Load() != 2 || c.Stats().Canceled != 1 || c.Stats().Asked != 2 {
		t.Errorf("%d at once; %+v", most.Load(), c.Stats())
	}
}

// TestBusy: who finds no place in all of its time goes without, and no engine is
// blamed.
func TestBusy(t *testing.T) {
	c := newClient(t, Config{Concurrent: 1, Timeout: 20 * time.Millisecond}, "http://127.0.0.1:1")
	c.slot <- struct{}{}
	if _, err := c.Tokens(t.Context(), chatPath, nil, chat("x")); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	if st := c.Stats(); st.Busy != 1 || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

// TestClientGoes: a caller that leaves is not the engine's fault.
func TestClientGoes(t *testing.T) {
	entered := make(chan struct{}, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		entered <- struct{}{}
		<-r.Context().Done()
	})
	c := newClient(t, Config{Timeout: time.Minute}, url)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-entered; cancel() }()
	if _, err := c.Tokens(ctx, chatPath, nil, chat("x")); err == nil {
		t.Error("ids")
	}
	if st := c.Stats(); st.Canceled != 1 || st.Failures != 0 || st.Failing != 0 {
		t.Errorf("%+v", st)
	}
}

func TestTargetsComeAndGo(t *testing.T) {
	var at atomic.Int32
	c := newClient(t, Config{Timeout: time.Second, Targets: func() []string {
		return []string{fmt.Sprintf("ftp://%d", at.Load())}
	}})
	for i := range 3 * maxSources {
		at.Store(int32(i))
		if _, err := c.Tokens(t.Context(), chatPath, nil, chat(fmt.Sprint(i))); err == nil {
			t.Fatal("ids")
		}
	}
	if len(c.sources) > maxSources+2 {
		t.Errorf("%d sources are remembered", len(c.sources))
	}
	none := newClient(t, Config{Targets: func() []string { return nil }})
	if _, err := none.Tokens(t.Context(), chatPath, nil, chat("x")); !errors.Is(err, ErrNoTarget) {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	targets := func() []string { return nil }
	for field, c := range map[string]Config{
		"Targets": {}, "Timeout": {Targets: targets, Timeout: -1}, "Concurrent": {Targets: targets, Concurrent: -1},
		"MaxBody": {Targets: targets, MaxBody: -1}, "MaxReply": {Targets: targets, MaxReply: 1<<30 + 1},
		"MinBackoff": {Targets: targets, MinBackoff: -1},
		"MaxBackoff": {Targets: targets, MinBackoff: 2, MaxBackoff: 1},
		"Egress":     {Targets: targets, Egress: egress.Policy{AllowHosts: []string{"a b"}}},
	} {
		_, err := New(c)
		var bad *router.ConfigError
		if !errors.As(err, &bad) || bad.Field != field || !strings.HasPrefix(err.Error(), "tokenize: "+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
