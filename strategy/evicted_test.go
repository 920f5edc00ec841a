package strategy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/vllmtest"
)

// TestEvictedOverSockets begins 24 chats on one replica with a cache for a third of them, adds three replicas, and goes
// on: the reported cached tokens spread the chats.
func TestEvictedOverSockets(t *testing.T) {
	for _, s := range textStrategies {
		t.Run(s.name, func(t *testing.T) { evictedOverSockets(t, s.new(t, nil)) })
	}
}

func evictedOverSockets(t *testing.T, s router.Strategy) {
	fleet, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rt := router.New(s, fleet, router.Options{})
	var servers []*vllmtest.Server
	for range 4 {
		servers = append(servers, vllmtest.NewServer(vllmtest.Config{Blocks: 600, MaxSeqs: 32, TimeScale: 0.1, ReplyTokens: 8,
			Timing: vllmtest.Timing{PrefillToken: 200 * time.Microsecond}}))
		defer servers[len(servers)-1].Close()
	}
	add := func(n int) {
		for _, srv := range servers[:n] {
			if err := fleet.Put(loadview.Member{ID: srv.URL}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var mu sync.Mutex
	turns := make(map[string]int)
	cached, length := 0, 0
	ask := func(text string, counts bool) {
		body, err := json.Marshal(map[string]any{"model": "m", "max_tokens": 8,
			"messages": []map[string]string{{"role": "user", "content": text}}})
		if err != nil {
			t.Error(err)
			return
		}
		p := router.Prompt{Model: "m", Text: text}
		err = rt.Do(context.Background(), p, func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
			id := l.Decision().Target.ID
			resp, err := http.Post(id+"/v1/chat/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				return router.Outcome{Err: err}, err
			}
			defer resp.Body.Close()
			var reply prompt.Reply
			if _, err := io.Copy(&reply, resp.Body); err != nil {
				return router.Outcome{Err: err}, err
			}
			o := reply.Outcome(resp.StatusCode, resp.Header)
			if !o.CachedReported {
				t.Errorf("status %d, no cached tokens", resp.StatusCode)
			}
			o.Reply = "" // the chats go on without it
			mu.Lock()
			defer mu.Unlock()
			if counts {
				turns[id]++
				cached += o.CachedTokens
				length += o.PromptTokens
			}
			return o, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	chats := make([]string, 24)
	add(1)
	for i := range chats {
		chats[i] = words(r, 4000)
		ask(chats[i], false)
	}
	add(4)
	for range 4 {
		var users sync.WaitGroup
		for u := range 8 {
			for i := u; i < len(chats); i += 8 {
				chats[i] += words(r, 120)
			}
			users.Go(func() {
				for i := u; i < len(chats); i += 8 {
					ask(chats[i], true)
				}
			})
		}
		users.Wait()
	}
	var spread []int
	for _, srv := range servers {
		spread = append(spread, turns[srv.URL])
	}
	share := float64(cached) / float64(length)
	if share < 0.4 || slices.Min(spread) < 8 || slices.Max(spread) > 60 {
		t.Errorf("turns %v, cached %.2f; want them spread, and 0.4 at least", spread, share)
	}
}
