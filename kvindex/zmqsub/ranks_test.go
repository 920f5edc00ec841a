package zmqsub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	router "github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/vllmtest"
)

// askRank sends a prompt to a rank and returns how many tokens were cached there.
func askRank(ctx context.Context, srv *vllmtest.Server, rank int, p router.Prompt) (router.Outcome, error) {
	body, err := json.Marshal(map[string]any{"prompt": p.Tokens, "max_tokens": 3})
	if err != nil {
		return router.Outcome{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return router.Outcome{}, err
	}
	req.Header.Set("X-data-parallel-rank", strconv.Itoa(rank))
	resp, err := srv.Client().Do(req)
	if err != nil {
		return router.Outcome{}, err
	}
	defer resp.Body.Close()
	var reply struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return router.Outcome{}, err
	}
	return router.Outcome{Status: resp.StatusCode, PromptTokens: reply.Usage.Prompt,
		CachedTokens: reply.Usage.Details.Cached}, nil
}

// TestRanksEndToEnd: one address with several data-parallel ranks. Each is a
// target of its own, with its own event stream and its own part of the metrics
// page, and precise_cache_aware routes to it by the header. What it foretells is
// what the rank reports, with a restart in the midst.
func TestRanksEndToEnd(t *testing.T) {
	for name, c := range map[string]struct {
		ranks  int
		events vllmtest.Events
	}{
		"two ranks":               {2, vllmtest.Events{Topic: "kv-events"}},
		"four ranks":              {4, vllmtest.Events{Arrays: true, ShortReplay: true}},
		"three ranks, one stream": {3, vllmtest.Events{Shared: true}},
	} {
		for n, nw := range networks {
			t.Run(name+", "+n, func(t *testing.T) {
				noLeak(t)
				srv := vllmtest.NewServer(vllmtest.Config{Ranks: c.ranks, Blocks: 80, TimeScale: 1e-6, Events: &c.events})
				defer srv.Close()
				d := newDiary(t)
				ids := make([]string, c.ranks)
				members := make([]loadview.Member, c.ranks)
				for i := range ids {
					ids[i] = fmt.Sprintf("rank-%d", i)
					members[i] = loadview.Member{ID: ids[i], Ref: i, Metrics: srv.MetricsURL(), Rank: strconv.Itoa(i)}
				}
				if c.events.Shared {
					pub := srv.Events()
					start(t, nw, Config{Endpoint: pub.Endpoint(), Index: d, Targets: []Target{{ID: "all ranks", Ranks: ids,
						Replay: pub.ReplayEndpoint()}}})
				} else {
					for i, id := range ids {
						at, err := RankEndpoint(srv.Events().Endpoint(), i)
						if err != nil {
							t.Fatal(err)
						}
						replay, err := RankEndpoint(srv.Events().ReplayEndpoint(), i)
						if err != nil {
							t.Fatal(err)
						}
						start(t, nw, Config{Endpoint: at, Index: d, Targets: []Target{{ID: id, Replay: replay}}})
					}
				}
				upToDate := func(i int) func() bool {
					return func() bool {
						pub := srv.RankEvents(i)
						next := pub.Next()
						last, ok := d.Last(ids[i])
						if next == 0 { // nothing of an earlier life is believed any more
							return pub.Subscribers() == 1 && !d.Trusted(ids[i])
						}
						return pub.Subscribers() == 1 && ok && last+1 == next && d.Trusted(ids[i])
					}
				}
				wrong := 0
				s, err := precisecacheaware.New(precisecacheaware.Config{
					Index: d.Index, PresumeFor: -1, Rand: rand.New(rand.NewPCG(3, 4)).Uint64,
					Mismatch: func(id string, predicted, reported int) { wrong++; t.Logf("%s: %d, was %d", id, predicted, reported) },
				})
				if err != nil {
					t.Fatal(err)
				}
				view, err := loadview.New(loadview.Config{})
				if err != nil {
					t.Fatal(err)
				}
				if err := view.Set(members); err != nil {
					t.Fatal(err)
				}
				route := router.New(s, view, router.Options{})
				r := rand.New(rand.NewPCG(1, 2))
				served := make([]int, c.ranks)
				hits := 0
				const requests = 200
				for i := range requests {
					if i == requests/2 {
						if err := srv.Restart(); err != nil {
							t.Fatal(err)
						}
						for _, id := range ids {
							route.Forget(id) // as the view does once it sees the restart
						}
					}
					for rank := range ids {
						eventually(t, "rank "+ids[rank]+" is up to date", upToDate(rank))
					}
					p := router.Prompt{Tokens: prompt(r)}
					var others []string
					if only := r.IntN(2 * c.ranks); only < c.ranks { // one has to do it, whatever it holds
						others = slices.Delete(slices.Clone(ids), only, only+1)
					}
					l, err := route.Route(t.Context(), p, others...)
					if err != nil {
						t.Fatal(err)
					}
					rank := l.Decision().Target.Ref.(int)
					before := srv.RankStats(rank)
					o, err := askRank(t.Context(), srv, rank, p)
					if err != nil {
						t.Fatal(err)
					}
					l.Done(o)
					if after := srv.RankStats(rank); after.PromptTokens != before.PromptTokens+uint64(len(p.Tokens)) {
						t.Errorf("the request did not go to rank %d", rank)
					}
					served[rank]++
					hits += min(o.CachedTokens, 1)
				}
				for rank, n := range served {
					if n < requests/c.ranks/4 {
						t.Errorf("rank %d served %d of %d", rank, n, requests)
					}
				}
				st := s.Stats()
				t.Logf("served %v, %d hits, %d of %d foretold wrongly", served, hits, wrong, st.Judged)
				if wrong > 0 || st.Mismatched > 0 || st.Judged < requests*9/10 || hits < requests/4 || srv.Stats().Evicted == 0 {
					t.Errorf("%d and %d of %d wrong, %d hits, %d blocks evicted", wrong, st.Mismatched, st.Judged, hits,
						srv.Stats().Evicted)
				}
			})
		}
	}
}

// TestRanksHaveTheirOwnCaches: one prompt on one rank, then on the other.
func TestRanksHaveTheirOwnCaches(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("one stream: ", shared), func(t *testing.T) { ownCaches(t, shared) })
	}
}

func ownCaches(t *testing.T, shared bool) {
	noLeak(t)
	srv := vllmtest.NewServer(vllmtest.Config{Ranks: 2, TimeScale: 1e-6, Events: &vllmtest.Events{Shared: shared}})
	defer srv.Close()
	d := newDiary(t)
	ids := []string{"a", "b"}
	if shared {
		start(t, nil, Config{Endpoint: srv.Events().Endpoint(), Index: d, Targets: []Target{{ID: "ab", Ranks: ids,
			Replay: srv.Events().ReplayEndpoint()}}})
	} else {
		for i, id := range ids {
			p := srv.RankEvents(i)
			start(t, nil, Config{Endpoint: p.Endpoint(), Index: d, Targets: []Target{{ID: id, Replay: p.ReplayEndpoint()}}})
		}
	}
	p := router.Prompt{Tokens: make([]uint32, 100)}
	expect := func(a, b int) {
		t.Helper()
		want := []int{a, b}
		var got []int
		eventually(t, fmt.Sprint("they hold ", want), func() bool {
			got = d.Match(p, ids, got)
			return max(0, got[0]) == a && max(0, got[1]) == b
		})
	}
	for rank, held := range [][2]int{{96, 0}, {96, 96}} {
		if o, err := askRank(t.Context(), srv, rank, p); err != nil || o.CachedTokens != 0 {
			t.Errorf("rank %d: %+v, %v", rank, o, err)
		}
		expect(held[0], held[1])
	}
	for rank := range 2 {
		if o, err := askRank(t.Context(), srv, rank, p); err != nil || o.CachedTokens != 96 {
			t.Errorf("rank %d again: %+v, %v", rank, o, err)
		}
	}
}

// ranked is a message of a data-parallel rank; -1: it names none.
func ranked(n, rank int) []byte {
	b := batch(n)
	if rank < 0 {
		b[len(b)-1] = 0xc0
	} else {
		b[len(b)-1] = byte(rank)
	}
	return b
}

// TestMixedRanks: two ranks in a stream that is taken for one engine's. What they
// report together is true of neither.
func TestMixedRanks(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		p := pub(t, vllmtest.Events{})
		defer p.Close()
		d := newDiary(t)
		for n := range 4 {
			p.Publish(ranked(n, 1))
		}
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d})
		eventually(t, "one rank alone is believed, whichever it is", func() bool {
			return s.State("a") == Live &&
				d.Trusted("a")
		})
		p.Publish(ranked(4, 0))
		for n := 5; n < 10; n++ {
			p.Publish(ranked(n, 1))
		}
		eventually(t, "nothing is believed", func() bool {
			return s.Stats().Malformed >= 6 && s.State("a") == Cold &&
				!d.Trusted("a")
		})
		p.Publish(ranked(10, 0))
		eventually(t, "nor later", func() bool { return s.Stats().Malformed >= 7 && s.State("a") == Cold && !d.Trusted("a") })
		n := s.Stats().Connects
		p.Restart()
		eventually(t, "it is connected again", func() bool { return s.Stats().Connects > n && s.State("a") != Down })
		for n := range 4 {
			p.Publish(ranked(100+n, 0))
		}
		eventually(t, "another engine is believed", func() bool {
			return s.State("a") == Live && d.Trusted("a") &&
				d.holds("a", 0, 3)
		})
	})
}

// TestRanksOfOneStream: gaps, restarts and messages that cannot be
// distinguished, if the ranks share a sequence.
func TestRanksOfOneStream(t *testing.T) {
	everywhere(t, func(t *testing.T, nw dialing, pub publishing) {
		p := pub(t, vllmtest.Events{})
		defer p.Close()
		d := newDiary(t)
		for n := range 30 {
			p.Publish(ranked(n, n%3))
		}
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Index: d, Targets: []Target{{ID: "all", Ranks: []string{"a", "",
			"c"}, Replay: p.ReplayEndpoint()}}})
		blocks := func(a, c int) func() bool {
			return func() bool {
				x, _ := d.Target("a")
				y, _ := d.Target("c")
				return x.Trusted && y.Trusted && x.Blocks == a && y.Blocks == c && s.State("all") == Live && s.State("c") == Live
			}
		}
		eventually(t, "each rank has its own", blocks(10, 10))
		if _, ok := d.Target("all"); ok || s.State("") != Cold || s.State("b") != Cold {
			t.Error("the stream itself is in the index")
		}
		if n := s.Stats().Unknown; n != 10 {
			t.Errorf("%d messages of the rank that is left out", n)
		}
		p.Drop(func(seq uint64) bool { return seq%5 < 3 })
		for n := 30; n < 60; n++ {
			p.Publish(ranked(n, 2*(n%2)))
		}
		eventually(t, "the gaps are filled", blocks(25, 25))
		p.Drop(nil)
		p.Publish(ranked(60, 7)) // a rank that there is not
		p.Publish(ranked(61, 0))
		eventually(t, "it is passed over", blocks(26, 25))
		p.Publish(ranked(62, -1))
		eventually(t, "whose it is nobody knows, so nothing is believed", func() bool {
			return s.Stats().Malformed == 1 && !d.Trusted("a") && !d.Trusted("c")
		})
		n := s.Stats().Connects
		p.Restart()
		eventually(t, "it is connected again", func() bool { return s.Stats().Connects > n && s.State("all") != Down })
		for n := range 6 {
			p.Publish(ranked(200+n, 2))
		}
		eventually(t, "another life", blocks(0, 6))
	})
}

func TestRanksConfig(t *testing.T) {
	d := newDiary(t)
	for _, targets := range [][]Target{
		{{ID: "a", Ranks: []string{"", ""}}},
		{{ID: "a", Ranks: []string{"b", "b"}}},
		{{ID: "a", Ranks: []string{"a"}}},
		{{ID: "a", Ranks: make([]string, maxRanks+1)}},
		{{ID: "a", Ranks: []string{"b"}}, {ID: "b", Topic: "x"}},
	} {
		_, err := New(Config{Endpoint: "tcp://10.0.0.1:5557", Targets: targets, Index: d})
		if err == nil || !strings.Contains(err.Error(), "Targets[") {
			t.Errorf("%d targets: %v", len(targets), err)
		}
	}
	ranks := []string{"b", "", "c"}
	s, err := New(Config{Endpoint: "tcp://10.0.0.1:5557", Targets: []Target{{ID: "a", Ranks: ranks}}, Index: d})
	if err != nil {
		t.Fatal(err)
	}
	ranks[0] = "changed"
	if diff := cmp.Diff([]string{"b", "c"}, s.cfg.Targets[0].names()); diff != "" {
		t.Error(diff)
	}
}
