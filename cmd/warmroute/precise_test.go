package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/vllmtest"
)

// fleet is four replicas with small caches that publish their events.
type fleet struct {
	servers []*vllmtest.Server
	urls    []string
	events  kvEvents
}

func newFleet(t *testing.T, n, blocks int) *fleet {
	t.Helper()
	f := &fleet{}
	for range n {
		s, err := vllmtest.New(vllmtest.Config{Blocks: blocks, TimeScale: 1e-6, ReplyTokens: 12, Events: &vllmtest.Events{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		f.servers = append(f.servers, s)
		f.urls = append(f.urls, s.URL)
		f.events = append(f.events, kvEndpoint{s.Events().Endpoint(), s.Events().ReplayEndpoint()})
	}
	return f
}

// connected waits until every replica has a subscriber in a known state.
func (f *fleet) connected(t *testing.T, g *rig) {
	t.Helper()
	eventually(t, "the streams are followed", func() bool {
		for _, s := range f.servers {
			st := g.service.streams.of(s.URL)
			if s.Events().Subscribers() != 1 || st == nil || st.State(s.URL) >= zmqsub.Resyncing {
				return false
			}
		}
		return true
	})
}

// current waits until the index has all that the replicas have published, but
// for lost last messages, which nobody can miss yet.
func (f *fleet) current(t *testing.T, g *rig, lost func(seq uint64) bool) {
	t.Helper()
	x := g.service.gateway.Index()
	eventually(t, "the index is up to date", func() bool {
		for _, s := range f.servers {
			next := s.Events().Next()
			if next == 0 {
				continue
			}
			seq, ok := x.Last(s.URL)
			for next > 0 && lost(next-1) {
				next--
			}
			if next > 0 && (!ok || seq+1 < next || !x.Trusted(s.URL)) {
				return false
			}
		}
		return true
	})
}

type said struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talk is one conversation.
type talk struct {
	said []said
	left int // turns
}

func newTalk(r *rand.Rand) *talk {
	return &talk{
		said: []said{{"system", strings.Repeat(fmt.Sprintf("You are assistant %d, and you know the office. ", r.IntN(3)),
			6)}},
		left: 2 + r.IntN(5),
	}
}

func (c *talk) ask(r *rand.Rand) {
	c.said = append(c.said, said{"user",
		strings.Repeat(fmt.Sprintf("Question %d about the weather. ", r.IntN(1000)), 1+r.IntN(8))})
	c.left--
}

// reply is what the tests read of one.
type reply struct {
	Choices []struct {
		Message said `json:"message"`
	} `json:"choices"`
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// talk sends a conversation, with further members.
func (g *rig) talk(t *testing.T, c *talk, ids []uint32, beside string) (http.Header, reply) {
	t.Helper()
	m, err := json.Marshal(c.said)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("POST", g.url+"/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(`{"model":"m"%s,"messages":%s}`, beside, m)))
	if err != nil {
		t.Fatal(err)
	}
	if ids != nil {
		req.Header.Set("X-Rolter-Vllm-Token-Ids", strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]"))
	}
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s, %v: %s", resp.Status, err, b)
	}
	var v reply
	if err := json.Unmarshal(b, &v); err != nil || len(v.Choices) != 1 {
		t.Fatalf("%v: %s", err, b)
	}
	c.said = append(c.said, v.Choices[0].Message)
	return resp.Header, v
}

// tokens asks a replica for the ids of a conversation.
func (f *fleet) tokens(t *testing.T, c *talk) []uint32 {
	t.Helper()
	b, _ := json.Marshal(map[string]any{"model": "m", "messages": c.said})
	req, err := http.NewRequest("POST", f.urls[0]+"/tokenize", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := f.servers[0].Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v struct{ Tokens []uint32 }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || len(v.Tokens) == 0 {
		t.Fatal(err)
	}
	return v.Tokens
}

// TestPredictions: small caches that evict all the time, one event in a hundred
// lost, a late join and a restart. What the gateway says is cached is what the
// engine reports, for at least 99 requests in 100, and each of the others is
// counted and logged.
func TestPredictions(t *testing.T) {
	for _, mode := range []string{"", file.TokensFromTokenize} {
		t.Run("ids by "+mode, func(t *testing.T) {
			leakCheck(t)
			f := newFleet(t, 4, 100)
			r := rand.New(rand.NewPCG(1, 2))
			for i, s := range f.servers { // before the gateway joins
				for j := range 10 {
					body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"}]}`,
						strings.Repeat(fmt.Sprint("early ", i, j), 40))
					resp, err := s.Client().Post(s.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
			g := newRig(t, rigConfig{
				Config: Config{Log: slog.New(slog.DiscardHandler)}, events: f.events, mode: mode,
				// Two seconds are hundreds of requests here, and what was evicted meanwhile
				// would be presumed resident.
				settings: "[routes.precise_cache_aware]\npresume_for = -1\n",
			}, f.urls...)
			f.connected(t, g)
			lost := func(seq uint64) bool { return seq%100 == 57 }
			for _, s := range f.servers {
				s.Events().Drop(lost)
			}
			const requests = 500
			right, hits, wrong := 0, 0, 0
			var talks []*talk
			for i := range requests {
				if i == requests/2 {
					if err := f.servers[2].Restart(); err != nil {
						t.Fatal(err)
					}
					f.connected(t, g)
				}
				for len(talks) < 6 {
					talks = append(talks, newTalk(r))
				}
				at := r.IntN(len(talks))
				c := talks[at]
				c.ask(r)
				var ids []uint32
				if mode == "" {
					ids = f.tokens(t, c)
				}
				f.current(t, g, lost)
				h, v := g.talk(t, c, ids, "")
				said, err := strconv.Atoi(h.Get(headerCachedTokens))
				if err != nil {
					t.Fatalf("request %d: %s is %q, because of %s", i, headerCachedTokens, h.Get(headerCachedTokens),
						h.Get(headerReason))
				}
				if said == v.Usage.Details.Cached {
					right++
				} else {
					wrong++
					t.Logf("request %d: %d of %d predicted, %d reported, %s", i, said, v.Usage.Prompt, v.Usage.Details.Cached,
						h.Get(headerReason))
				}
				if v.Usage.Details.Cached > 0 {
					hits++
				}
				if c.left == 0 {
					talks = append(talks[:at], talks[at+1:]...)
				}
			}
			g.settled(t)
			s := g.service.precise()
			t.Logf("%d of %d right, %d with hits; %+v", right, requests, hits, s)
			if right*100 < requests*99 || hits < requests/2 {
				t.Errorf("%d of %d right, %d with hits", right, requests, hits)
			}
			if s.Mismatched != int64(wrong) || s.PredictedTooMuch+s.PredictedTooLittle != int64(wrong) ||
				s.Judged < requests*9/10 || s.Restarts == 0 {
				t.Errorf("%d were wrong; %+v", wrong, s)
			}
			evicted := uint64(0)
			for _, s := range f.servers {
				evicted += s.Stats().Evicted
			}
			if evicted < requests {
				t.Errorf("only %d blocks were evicted", evicted)
			}
		})
	}
}
