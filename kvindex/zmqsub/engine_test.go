package zmqsub

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"testing"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/vllmtest"
)

// TestPredictsCachedTokens: what the index says before a request is what the
// engine reports after it, with a small cache, lost messages and a restart.
func TestPredictsCachedTokens(t *testing.T) {
	for name, events := range map[string]vllmtest.Events{
		"maps":   {Topic: "kv@a@m"},
		"arrays": {Arrays: true, ShortReplay: true},
		"bytes":  {Bytes: true},
	} {
		for n, nw := range networks {
			t.Run(name+", "+n, func(t *testing.T) {
				noLeak(t)
				srv := vllmtest.NewServer(vllmtest.Config{Blocks: 80, Adapters: []string{"lora"}, TimeScale: 1e-6, Events: &events})
				defer srv.Close()
				pub := srv.Events()
				d := newDiary(t)
				s := start(t, nw, Config{Endpoint: pub.Endpoint(), Targets: []Target{{ID: "a", Replay: pub.ReplayEndpoint()}},
					Index: d})
				eventually(t, "it is connected", func() bool { return pub.Subscribers() == 1 })
				r := rand.New(rand.NewPCG(1, 2))
				right, hits := 0, 0
				pub.Drop(func(seq uint64) bool { return seq%20 == 7 })
				const requests = 250
				for i := range requests {
					if i == 120 {
						if err := srv.Restart(); err != nil {
							t.Fatal(err)
						}
						eventually(t, "it is connected again", func() bool { return pub.Subscribers() == 1 && s.State("a") != Down })
					}
					p := router.Prompt{Tokens: prompt(r)}
					model := ""
					switch r.IntN(4) {
					case 0:
						p.Adapter, model = "lora", "lora"
					case 1:
						p.Salt = "salt"
					}
					var want int
					eventually(t, "the index is up to date", func() bool {
						seq, ok := d.Last("a")
						if next := pub.Next(); next > 0 && (!ok || seq+1 != next) {
							if ok && next > 0 && (next-1)%20 == 7 {
								return true // lost, and nothing follows yet that shows it
							}
							return false
						}
						return pub.Next() == 0 || d.Trusted("a")
					})
					want = max(0, d.Match(p, []string{"a"}, nil)[0])
					got := ask(t, srv, model, p)
					if got == want {
						right++
					}
					if got > 0 {
						hits++
					}
				}
				t.Logf("%d of %d right, %d hits", right, requests, hits)
				if right < requests*98/100 || hits < requests/5 {
					t.Errorf("%d of %d are right, %d hits", right, requests, hits)
				}
			})
		}
	}
}

// prompt is one of few conversations, cut anywhere.
func prompt(r *rand.Rand) []uint32 {
	which, n := uint32(r.IntN(8)), 1+r.IntN(400)
	p := make([]uint32, n)
	for i := range p {
		p[i] = 1000 + uint32(i)
		if i >= 64 {
			p[i] += 1000 * which
		}
	}
	return p
}

func ask(t *testing.T, srv *vllmtest.Server, model string, p router.Prompt) int {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": model, "prompt": p.Tokens, "max_tokens": 3, "cache_salt": p.Salt})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Post(srv.URL+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var reply struct {
		Usage struct {
			Details *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil || resp.StatusCode != http.StatusOK ||
		reply.Usage.Details == nil {
		t.Fatalf("%s: %v, %+v", resp.Status, err, reply)
	}
	return reply.Usage.Details.Cached
}
