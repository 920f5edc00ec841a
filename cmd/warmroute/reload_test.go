package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// TestReloadUnderLoad changes the file all the time, while requests, whole ones and
// streams that last longer than a file, come in: none is refused, cut or sent to a target that
// was not there when it came.
func TestReloadUnderLoad(t *testing.T) {
	signalled(t)
	leakCheck(t)
	var urls []string
	for range 3 {
		s := vllmtest.NewServer(vllmtest.Config{Model: "engine-name", TimeScale: 0.05, ReplyTokens: 60})
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	files := []string{}
	for _, c := range []struct {
		strategy string
		weights  [3]int // 0: not in the file
		more     string
	}{
		{"cache_aware", [3]int{1, 1, 1}, ""},
		{"cache_aware", [3]int{1, 3, 0}, "[routes.cache_aware]\nthreshold = 0.7\n"},
		{"least_work", [3]int{0, 1, 1}, "[[routes]]\nmodel = \"another\"\ntargets = [{ provider = \"p1\" }]\n"},
		{"round_robin", [3]int{2, 0, 1}, "[routes.failover]\nattempts = 2\n"},
		{"pipeline", [3]int{1, 0, 0}, ""},
	} {
		var b, targets strings.Builder
		for i, w := range c.weights {
			if w > 0 {
				fmt.Fprintf(&b, "[[providers]]\nname = \"p%d\"\napi_base = %q\n", i, urls[i])
				fmt.Fprintf(&targets, "{ provider = \"p%d\", model = \"engine-name\", weight = %d }, ", i, w)
			}
		}
		files = append(files, fmt.Sprintf(
			"%s[[routes]]\nmodel = \"m\"\naliases = [\"alias\"]\nstrategy = %q\ntargets = [%s]\n%s",
			b.String(), c.strategy, targets.String(), c.more))
	}
	path := filepath.Join(t.TempDir(), "router.toml")
	place(t, path, files[0])
	p := start(t, "-config", path, "-watch", "5ms")

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	chat := func(user, n int) error {
		stream := n%2 == 0
		body := fmt.Sprintf(`{"model":%q,"stream":%v,"messages":[{"role":"user","content":%q}]}`,
			[]string{"m", "alias"}[user%2], stream, strings.Repeat(fmt.Sprintf("user %d, ", user), 20+n%5))
		resp, err := client.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		last := ""
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadString('\n')
			if s := strings.TrimSpace(line); s != "" {
				last = s
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
		if resp.StatusCode != 200 || stream && last != "data: [DONE]" || resp.Header.Get(headerAttempts) != "1" {
			return fmt.Errorf("%s, %s attempts, ends with %.200s", resp.Status, resp.Header.Get(headerAttempts), last)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var served atomic.Int64
	var users sync.WaitGroup
	for user := range 8 {
		users.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := chat(user, n); err != nil {
					t.Errorf("user %d: %v", user, err)
					return
				}
				served.Add(1)
			}
		})
	}
	begun := time.Now()
	changes := 0
	for ; changes < 25 || served.Load() < 200; changes++ {
		if t.Failed() || time.Since(begun) > time.Minute {
			break
		}
		place(t, path, files[(changes+1)%len(files)])
		eventually(t, "the file is in place", func() bool { return p.log.count("the configuration is in place") > changes })
	}
	cancel()
	users.Wait()
	t.Logf("%d requests over %d files", served.Load(), changes)
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if served.Load() < 100 {
		t.Errorf("only %d requests", served.Load())
	}
}
