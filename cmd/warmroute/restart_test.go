package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/vllmtest"
)

// TestReplicasComeAndGo kills and restarts one replica after the other under
// load: as there is always another one, no request fails.
func TestReplicasComeAndGo(t *testing.T) {
	for _, strategy := range []string{pipeline.Name, cacheaware.Name, leastwork.Name} {
		t.Run(strategy, func(t *testing.T) { comeAndGo(t, strategy) })
	}
}

func comeAndGo(t *testing.T, strategy string) {
	var replicas []*vllmtest.Server
	var addresses []string
	for i := range 4 {
		s, err := vllmtest.New(vllmtest.Config{TimeScale: 0.02, ReplyTokens: 16, Blocks: 4096})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		replicas = append(replicas, s)
		addresses = append(addresses, fmt.Sprintf("%s=%d", s.URL, 1+i%2)) // weights 1, 2, 1, 2
	}
	g := newRig(t, rigConfig{
		strategy: strategy,
		options:  router.Options{Attempts: 4, FailOpen: true},
		// Cool-downs as short as the test.
		health: "cool_base = \"50ms\"\ncool_max = \"100ms\"",
	}, addresses...)

	var served, again atomic.Int64
	var answers [12]atomic.Int64 // of each user
	stop := make(chan struct{})
	var users sync.WaitGroup
	for user := range len(answers) {
		users.Go(func() {
			for chat := 0; ; chat++ {
				said := []map[string]string{{"role": "system",
					"content": strings.Repeat(fmt.Sprintf("You are assistant %d. ", user%3), 60)}}
				for turn := range 5 {
					select {
					case <-stop:
						return
					default:
					}
					said = append(said, map[string]string{"role": "user",
						"content": fmt.Sprintf("Question %d of %d: %s", turn, user, strings.Repeat("why? ", 40))})
					answer, attempts, err := g.chat(said, fmt.Sprintf("%d-%d", user, chat))
					if err != nil {
						t.Errorf("user %d, turn %d: %v", user, turn, err)
						return
					}
					served.Add(1)
					answers[user].Add(1)
					if attempts != "1" {
						again.Add(1)
					}
					said = append(said, map[string]string{"role": "assistant", "content": answer})
				}
			}
		})
	}
	// Each replica dies twice: it refuses connections, breaks what it was at, loses
	// its cache, and comes back once the others have served each user for a while. So no
	// request meets more than two deaths, however slow the machine is.
	for round := range 8 {
		s := replicas[round%4]
		for _, step := range []func() error{
			func() error { return s.SetFaults(vllmtest.Faults{Refuse: true}) },
			s.Restart,
			nil,
			func() error { return s.SetFaults(vllmtest.Faults{}) },
		} {
			if step != nil {
				if err := step(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			goal := served.Load() + 40
			var before [len(answers)]int64
			for i := range answers {
				before[i] = answers[i].Load()
			}
			eventually(t, "the others serve", func() bool {
				for i := range answers {
					if answers[i].Load() == before[i] {
						return t.Failed()
					}
				}
				return served.Load() >= goal || t.Failed()
			})
		}
	}
	close(stop)
	users.Wait()
	g.settled(t)
	if again.Load() == 0 {
		t.Error("no request met a dead replica: the test shows nothing")
	}
	t.Logf("%d requests served, %d of them not at the first attempt", served.Load(), again.Load())
}

// chat sends one request that is not streamed and returns the answer.
func (g *rig) chat(said []map[string]string, session string) (answer, attempts string, err error) {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": said})
	if err != nil {
		return "", "", err
	}
	req, err := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-Id", session)
	resp, err := g.http.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("%s %s: %v", resp.Status, b, err)
	}
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(b, &reply); err != nil || len(reply.Choices) != 1 {
		return "", "", fmt.Errorf("%s: %v", b, err)
	}
	return reply.Choices[0].Message.Content, resp.Header.Get("X-Warmroute-Attempts"), nil
}
