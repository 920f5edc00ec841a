package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/internal/shareddata"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/roundrobin"
)

// recording is one request of a recorded session and the answer it got.
type recording struct {
	corpus     string
	path, body string
	text       string // what the engine would be given, as this test renders it
	reply      string // the text that the answer adds to it
	answer     string // the body of the answer
}

// memory is the cache of an engine that holds everything it was ever given or
// made: exact, in bytes, and known to nobody but this test.
type memory struct{ sorted []string }

// cached returns the length of text's longest common prefix with anything in
// memory: in sorted order that is one of its two neighbours'.
func (m *memory) cached(text string) int {
	i, _ := slices.BinarySearch(m.sorted, text)
	best := 0
	for _, j := range []int{i - 1, i} {
		if j >= 0 && j < len(m.sorted) {
			best = max(best, commonPrefix(m.sorted[j], text))
		}
	}
	return best
}

func (m *memory) add(text string) {
	i, found := slices.BinarySearch(m.sorted, text)
	if !found {
		m.sorted = slices.Insert(m.sorted, i, text)
	}
}

func commonPrefix(a, b string) int {
	const step = 512 // most of two neighbours is equal
	n, end := 0, min(len(a), len(b))
	for n+step <= end && a[n:n+step] == b[n:n+step] {
		n += step
	}
	for n < end && a[n] == b[n] {
		n++
	}
	return n
}

// engine remembers what it was asked and what it answered.
type engine struct {
	mu         sync.Mutex
	memory     memory
	requests   int
	asked, hit map[string]int // bytes, by corpus and, under "", in all; hit: found in memory
}

func (e *engine) take(r recording) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// The prompt is in the cache as soon as it is computed; what is generated
	// after it, when it is generated, which here is at once.
	e.count(r.corpus, len(r.text), e.memory.cached(r.text))
	e.memory.add(r.text + r.reply)
	e.requests++
}

func (e *engine) count(corpus string, asked, hit int) {
	if e.asked == nil {
		e.asked, e.hit = make(map[string]int), make(map[string]int)
	}
	for _, k := range []string{"", corpus} {
		e.asked[k] += asked
		e.hit[k] += hit
	}
}

// add adds o's counts to e's.
func (e *engine) add(o *engine) {
	e.requests += o.requests
	for corpus, asked := range o.asked {
		if corpus != "" {
			e.count(corpus, asked, o.hit[corpus])
		}
	}
}

func (e *engine) share(corpus string) float64 {
	return float64(e.hit[corpus]) / float64(e.asked[corpus])
}

// TestReplay sends recorded sessions through the gateway to four engines that
// hold everything, 16 sessions at once, each next turn when the reply has ended,
// and compares the places of the bytes with those that one engine for all would
// have found.
func TestReplay(t *testing.T) {
	sessions := mixed(tauBench(t), miniSWE(t))
	if racetest.Enabled {
		sessions = sessions[:len(sessions)/5] // it is some 20 times as slow
	}
	all := new(engine)
	for _, s := range sessions {
		for _, r := range s {
			all.take(r)
		}
	}
	ideal := all.share("")
	t.Logf("%-11s %.2f%% of the bytes cached (tau-bench %.2f%%, mini-swe %.2f%%)",
		"one cache", 100*ideal, 100*all.share("tau-bench"), 100*all.share("mini-swe"))
	for _, strategy := range []string{roundrobin.Name, cacheaware.Name} {
		engines := replay(t, strategy, sessions)
		var sum engine
		most := 0
		for _, e := range engines {
			sum.add(e)
			most = max(most, e.requests)
		}
		if sum.requests != all.requests || !maps.Equal(sum.asked, all.asked) {
			t.Fatalf("%d requests of %v bytes arrived, want %d of %v", sum.requests, sum.asked, all.requests, all.asked)
		}
		share, busiest := sum.share(""), float64(most*len(engines))/float64(sum.requests)
		t.Logf("%-11s %.2f%% (%.2f%%, %.2f%%): %.2f%% of what one cache would have; busiest engine %.2fx its share of "+
			"requests",
			strategy, 100*share, 100*sum.share("tau-bench"), 100*sum.share("mini-swe"), 100*share/ideal, busiest)
		if strategy == cacheaware.Name && (share < 0.97*ideal || busiest > 1.5) {
			t.Errorf("want 97%% of %.2f%%, and at most 1.5x", 100*ideal)
		}
	}
}

// mixed spreads b's sessions evenly among a's.
func mixed(a, b [][]recording) [][]recording {
	var out [][]recording
	for i, s := range a {
		for len(b) > 0 && len(out)-i <= i*len(b)/len(a) && len(out)-i < len(b) {
			out = append(out, b[len(out)-i])
		}
		out = append(out, s)
	}
	return append(out, b[len(out)-len(a):]...)
}

// replay plays sessions through the gateway and returns the engines.
func replay(t *testing.T, strategy string, sessions [][]recording) []*engine {
	// A request names its recording in a header, which the gateway passes on, so
	// that an engine need not understand it.
	byID := make(map[string]recording)
	var urls []string
	var engines []*engine
	for range 4 {
		e := new(engine)
		engines = append(engines, e)
		urls = append(urls, upstream(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			rec := byID[r.Header.Get("X-Recording")]
			if string(b) != rec.body {
				t.Error("the body was changed")
			}
			e.take(rec)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, rec.answer)
		}))
	}
	for i, s := range sessions {
		for j, r := range s {
			byID[fmt.Sprint(i, "/", j)] = r
		}
	}
	g := newRig(t, rigConfig{strategy: strategy, Config: Config{Log: discard}}, urls...)
	g.http.Transport.(*http.Transport).MaxIdleConnsPerHost = 16

	next := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range next {
				for j, r := range sessions[i] {
					req, _ := http.NewRequest("POST", g.url+r.path, strings.NewReader(r.body))
					req.Header.Set("X-Recording", fmt.Sprint(i, "/", j))
					resp, err := g.http.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					b, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || resp.StatusCode != 200 || string(b) != r.answer {
						t.Errorf("%s, %v", resp.Status, err)
					}
				}
			}
		})
	}
	for i := range sessions {
		next <- i
	}
	close(next)
	wg.Wait()
	g.settled(t)

	return engines
}

// tauBench reads 200 trajectories: each message of the assistant is one request,
// with the messages before it as its prompt.
func tauBench(t *testing.T) [][]recording {
	b, err := os.ReadFile(shareddata.Path(t, "taubench/gpt-4o-airline.json"))
	if err != nil {
		t.Fatal(err)
	}
	var runs []struct {
		Traj []json.RawMessage `json:"traj"`
	}
	if err := json.Unmarshal(b, &runs); err != nil {
		t.Fatal(err)
	}
	var sessions [][]recording
	n := 0
	for _, run := range runs {
		var s []recording
		var said strings.Builder
		for i, raw := range run.Traj {
			var m struct {
				Role    string
				Content *string
				Calls   []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Fatal(err)
			}
			turn := m.Role + "\x00"
			if m.Content != nil {
				turn += *m.Content
			}
			for _, c := range m.Calls {
				turn += "\x01" + c.Function.Name + "\x02" + c.Function.Arguments
			}
			if m.Role == "assistant" {
				messages, _ := json.Marshal(run.Traj[:i])
				s = append(s, recording{
					corpus: "tau-bench",
					path:   "/v1/chat/completions",
					body:   `{"model":"gpt-4o","messages":` + string(messages) + `}`,
					text:   said.String(),
					reply:  turn,
					answer: `{"object":"chat.completion","choices":[{"index":0,"message":` + string(raw) +
						`,"finish_reason":"stop"}]}`,
				})
				n++
			}
			said.WriteString(turn)
		}
		sessions = append(sessions, s)
	}
	if n != 2454 {
		t.Fatalf("%d requests, want 2454", n)
	}
	return sessions
}

// miniSWE reads 20 sessions of a coding agent, with prompts as text: each is
// the beginning of the one before it, kept, and a rest.
func miniSWE(t *testing.T) [][]recording {
	f, err := os.Open(shareddata.Path(t, "agent_text/lmcache_miniswe.delta.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	prompts := make(map[string]string)
	sessions := make(map[string][]recording)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var row struct {
			Session, Suffix, Output string
			Keep                    int
			Bytes                   int `json:"input_bytes"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		p := prompts[row.Session][:row.Keep] + row.Suffix
		if len(p) != row.Bytes {
			t.Fatalf("a prompt of %d bytes, want %d", len(p), row.Bytes)
		}
		prompts[row.Session] = p
		body, _ := json.Marshal(map[string]string{"model": "m", "prompt": p})
		answer, _ := json.Marshal(map[string]any{"object": "text_completion",
			"choices": []any{map[string]any{"index": 0, "text": row.Output}}})
		sessions[row.Session] = append(sessions[row.Session],
			recording{"mini-swe", "/v1/completions", string(body), p, row.Output, string(answer)})
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	var out [][]recording
	for _, k := range slices.Sorted(maps.Keys(sessions)) {
		out = append(out, sessions[k])
	}
	return out
}
