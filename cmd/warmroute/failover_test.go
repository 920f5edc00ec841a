package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/vllmtest"
)

// closedPort is an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

// hijack takes the connection from the server, so that a handler can break it.
func hijack(t *testing.T, w http.ResponseWriter) net.Conn {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return nil
	}
	return c
}

// quick has short timeouts and no waits between attempts.
func quick() rigConfig {
	return rigConfig{
		Config:  Config{HeaderTimeout: 200 * time.Millisecond, IdleTimeout: 200 * time.Millisecond},
		options: router.Options{Backoff: -1, MaxRetryAfter: -1, Attempts: 4},
	}
}

// TestFailover has one target that fails before the first byte and one that
// does not: each request is answered, and the failing one is asked once.
func TestFailover(t *testing.T) {
	answer := func(status int, h ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			for i := 0; i < len(h); i += 2 {
				w.Header().Set(h[i], h[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, strings.Repeat("go away ", 1<<14)) // more than is read of it
		}
	}
	for name, bad := range map[string]http.HandlerFunc{
		"500": answer(500), "503": answer(503, "Retry-After", "1"), "429": answer(429, "Retry-After", "3"),
		"408": answer(408),
		"hang": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"headers, then nothing": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"503 whose body hangs": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(503)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"connection closed": func(w http.ResponseWriter, r *http.Request) {
			hijack(t, w).Close()
		},
		"cut after the headers": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
			c.Close()
		},
		"no HTTP": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			io.WriteString(c, "what?\r\n\r\n")
			c.Close()
		},
		"endless header": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			line := bytes.Repeat([]byte("x"), 4096)
			for {
				if _, err := c.Write(line); err != nil {
					break
				}
			}
			c.Close()
		},
		"switches protocols": func(w http.ResponseWriter, r *http.Request) {
			c := hijack(t, w)
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			first := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				bad(w, r)
			})
			if failed, n := testFailover(t, first), int(asked.Load()); n != failed {
				t.Errorf("the failing target was asked %d times, for %d requests", n, failed)
			}
		})
	}
	t.Run("refuse", func(t *testing.T) { testFailover(t, closedPort(t)) })
}

// testFailover sends requests, of which round robin gives some to bad first, and
// returns how many.
func testFailover(t *testing.T, bad string) (failed int) {
	good := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	c := quick()
	c.health = "cool_after = -1\nretry_after_max = -1"
	g := newRig(t, c, bad, good)
	for range 3 {
		resp := g.post(t, "/v1/chat/completions", chatBody)
		if got := readAll(t, resp.Body); resp.StatusCode != 200 || got != chatBody || resp.Header.Get(headerTarget) != good {
			t.Fatalf("%s: %q from %s", resp.Status, got, resp.Header.Get(headerTarget))
		}
		if resp.Header.Get(headerAttempts) == "2" {
			failed++
		}
	}
	g.settled(t)
	told := 0
	for _, o := range g.ended() {
		if o.Retryable() {
			told++
		}
	}
	if failed == 0 || told != failed {
		t.Errorf("%d requests took a second attempt, %d failures told: %+v", failed, told, g.ended())
	}
	return failed
}

// TestNothingTwice cuts replies after their first byte: the client sees a broken
// reply, and no other target is asked.
func TestNothingTwice(t *testing.T) {
	for name, f := range map[string]func(c net.Conn){
		"chunked": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "+
				"chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
		},
		"sized": func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: 1\n\n") },
		"idle": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: 1\n\n")
			c.Read(make([]byte, 1)) // until the gateway leaves
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				io.Copy(io.Discard, r.Body)
				c := hijack(t, w)
				defer c.Close()
				f(c)
			})
			g := newRig(t, quick(), up, up+"/b")
			resp := g.post(t, "/v1/chat/completions", streamBody)
			b, err := io.ReadAll(resp.Body)
			if string(b) != "data: 1\n\n" || err == nil {
				t.Errorf("got %q, %v", b, err)
			}
			g.settled(t)
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			if o := g.ended(); len(o) != 1 || o[0].Stage != router.Failed || o[0].Status != 200 || o[0].Err == nil {
				t.Errorf("ended as %+v", o)
			}
		})
	}
}

// TestLastAnswer passes on the last target's answer if all fail, and speaks
// for those that said nothing.
func TestLastAnswer(t *testing.T) {
	busy := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(503)
		io.WriteString(w, "so busy")
	})
	hang := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	for _, c := range []struct {
		name     string
		targets  []string
		status   int
		body     string
		attempts string
	}{
		{"busy", []string{busy, busy + "/b"}, 503, "so busy", "2"},
		{"refuse", []string{closedPort(t)}, 502, "could not be reached", "1"},
		{"hang", []string{hang}, 504, "in time", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, quick(), c.targets...)
			resp := g.post(t, "/v1/chat/completions", chatBody)
			body := readAll(t, resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(body, c.body) || resp.Header.Get(headerAttempts) != c.attempts {
				t.Errorf("%s, %s attempts: %q", resp.Status, resp.Header.Get(headerAttempts), body)
			}
			g.settled(t)
		})
	}
}

// TestClientErrors: a model that another target may have is asked for there, once, and nobody is blamed.
func TestClientErrors(t *testing.T) {
	var asked atomic.Int32
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.WriteHeader(404)
		io.WriteString(w, "no such model")
	})
	g := newRig(t, quick(), up, up+"/b")
	resp := g.post(t, "/v1/chat/completions", chatBody)
	if got := readAll(t, resp.Body); resp.StatusCode != 404 || got != "no such model" || asked.Load() != 2 {
		t.Errorf("%s: %q, asked %d times", resp.Status, got, asked.Load())
	}
	g.settled(t)
	for _, s := range g.view.Snapshot() {
		if s.Failures != 0 {
			t.Errorf("%s is blamed", s.Target.ID)
		}
	}
}

func TestNoTarget(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(429)
	})
	for _, open := range []bool{false, true} {
		c := quick()
		c.options.FailOpen = open
		c.health = "jitter = -1"
		g := newRig(t, c, up)
		if s := g.post(t, "/v1/chat/completions", chatBody).StatusCode; s != 429 {
			t.Fatalf("first: status %d", s)
		}
		g.settled(t)
		resp := g.post(t, "/v1/chat/completions", chatBody)
		switch after := resp.Header.Get("Retry-After"); {
		case open && resp.StatusCode != 429:
			t.Errorf("failing open: %s", resp.Status)
		case !open && (resp.StatusCode != 503 || after != "1"): // it tries the target itself by then
			t.Errorf("%s, Retry-After %q", resp.Status, after)
		}
		g.settled(t)
	}
}

// TestStorm sends many requests at replicas that fail in every way, of which
// some clients leave, and finds nothing left behind.
func TestStorm(t *testing.T) {
	leakCheck(t)
	var urls []string
	var replicas []*vllmtest.Server
	for range 4 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001, ReplyTokens: 20})
		t.Cleanup(s.Close)
		replicas = append(replicas, s)
		urls = append(urls, s.URL)
	}
	c := quick()
	c.strategy = cacheaware.Name
	c.Log = discard
	c.health = "cool_base = \"1ms\"\ncool_max = \"2ms\"\nretry_after_max = -1"
	g := newRig(t, c, urls...)

	ctx, stop := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	for i, s := range replicas {
		faults.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			all := []vllmtest.Faults{{}, {Refuse: true, Next: 3}, {Status: 500}, {Status: 429, RetryAfter: time.Second},
				{Hang: true, Next: 2}, {CutAfter: 3}, {Delay: 5 * time.Millisecond}, {}}
			for ctx.Err() == nil {
				if err := s.SetFaults(all[r.IntN(len(all))]); err != nil {
					t.Error(err)
				}
				if r.IntN(20) == 0 {
					s.Restart()
				}
				pause(ctx, 5*time.Millisecond)
			}
			s.SetFaults(vllmtest.Faults{})
		})
	}
	var whole, broken, refused, left atomic.Int32
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			for n := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(5) == 0 {
					time.AfterFunc(time.Duration(r.IntN(20))*time.Millisecond, cancel)
				}
				body := fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"%s %d"}]}`, n%2 == 0,
					strings.Repeat("word ", 50), r.IntN(8))
				req, _ := http.NewRequestWithContext(ctx, "POST", g.url+"/v1/chat/completions", strings.NewReader(body))
				resp, err := g.http.Do(req)
				status := 0
				if err == nil {
					status = resp.StatusCode
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				switch {
				case ctx.Err() != nil:
					left.Add(1)
				case errors.Is(err, io.ErrUnexpectedEOF) || err != nil:
					broken.Add(1)
				case status == 200:
					whole.Add(1)
				default:
					refused.Add(1)
				}
				cancel()
			}
		})
	}
	clients.Wait()
	stop()
	faults.Wait()
	t.Logf("%d whole, %d broken, %d refused, %d left", whole.Load(), broken.Load(), refused.Load(), left.Load())
	if whole.Load() < 100 {
		t.Errorf("only %d of 640 requests were answered", whole.Load())
	}
	g.settled(t)
	for _, s := range replicas {
		eventually(t, "the replica is idle", func() bool { st := s.Stats(); return st.Running+st.Waiting == 0 })
	}
}
