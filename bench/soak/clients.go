package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// tally counts the outcomes of requests.
type tally struct {
	sent     atomic.Int64
	whole    atomic.Int64 // a reply with status 200, read to its end
	again    atomic.Int64 // of these, answered by another target than the first
	canceled atomic.Int64 // left by the client, as it meant to
	refused  atomic.Int64 // bad on purpose, and answered with an error
	poisoned atomic.Int64 // such as no replica can serve, and answered so
	shed     atomic.Int64 // more than fits, and answered so
	broken   atomic.Int64 // began with 200 and broke off
	failed   atomic.Int64 // any other end: the effect of faults on good requests
}

// clients send chats until they are stopped.
type clients struct {
	url   string
	users int
	think time.Duration
	seed  uint64

	ledger  *ledger
	lost    losses
	hostile *hostile // nil: there is none

	http  *http.Client
	batch atomic.Uint64
	tally
}

// batchSize is the number of conversations that are made at once; they share two
// system prompts, and no other batch has them.
const batchSize = 16

func (c *clients) run(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: c.users, DisableCompression: true}
	defer transport.CloseIdleConnections()
	c.http = &http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var wg sync.WaitGroup
	for user := range c.users {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(c.seed, uint64(user)))
			for ctx.Err() == nil {
				w := workload.Chat(workload.ChatConfig{
					Seed: c.seed<<32 + c.batch.Add(1), Conversations: batchSize, Systems: 2,
					SystemBytes: 4 << 10, Turns: 6, UserBytes: 600, AssistantBytes: 300,
				})
				for i := range w.Conversations {
					c.converse(ctx, random, w.Conversations[i].Messages)
				}
			}
		})
	}
	wg.Wait()
}

// secret is in every message, session key and API key, and never in the gateway's
// log.
const secret = "c0nf1dent1al"

// converse sends a conversation turn by turn. One that fails is gone on with, as
// people do.
func (c *clients) converse(ctx context.Context, random *rand.Rand, said []workload.Message) {
	session := fmt.Sprint(secret, random.Uint64())
	said = slices.Clone(said)
	for i, m := range said {
		said[i].Content += " " + secret
		if m.Role != "user" {
			continue
		}
		if !pause(ctx, time.Duration(random.ExpFloat64()*float64(c.think))) {
			return
		}
		c.sent.Add(1)
		c.turn(ctx, random, session, said[:i+1])
	}
}

func (c *clients) turn(ctx context.Context, random *rand.Rand, session string, said []workload.Message) {
	stream, kind := random.IntN(3) > 0, random.IntN(100)
	if kind == 12 {
		said = slices.Clone(said)
		said[len(said)-1].Content += " " + poison
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": said, "stream": stream})
	if err != nil {
		c.failed.Add(1)
		return
	}
	header := http.Header{
		"Content-Type":  {"application/json"},
		"X-Session-Id":  {session},
		"Authorization": {fmt.Sprint("Bearer ", secret, random.IntN(100))},
	}
	switch {
	case kind < 8:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(60))*time.Millisecond)
		defer cancel()
	case kind < 12:
		c.nonsense(ctx, random, header, body)
		return
	}
	begun := time.Now()
	resp, err := c.post(ctx, header, bytes.NewReader(body))
	var reply []byte
	if err == nil {
		defer resp.Body.Close()
		limit := int64(1 << 20)
		if kind == 99 {
			limit = 100 // enough of it; the connection is closed with the reply under way
		}
		reply, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	}
	switch {
	case ctx.Err() != nil || err == nil && kind == 99:
		c.canceled.Add(1)
		return
	case kind == 12: // that the others are served is what counts
		c.poisoned.Add(1)
		return
	case err == nil && resp.StatusCode == http.StatusOK && whole(reply, stream):
		c.whole.Add(1)
		c.hostile.ended(begun, true)
		if resp.Header.Get("X-Warmroute-Attempts") != "1" {
			c.again.Add(1)
		}
		return
	case resp != nil && resp.StatusCode == http.StatusOK:
		c.broken.Add(1)
	default:
		c.failed.Add(1)
	}
	c.hostile.ended(begun, false)
	target, attempts, status := "", "", 0
	if resp != nil {
		status = resp.StatusCode
		target, attempts = resp.Header.Get("X-Warmroute-Target"), resp.Header.Get("X-Warmroute-Attempts")
	}
	if lacking(status) && attempts != "1" {
		return // a second replica answered so, as if nobody had what the request needs
	}
	if !c.ledger.excuses(target, begun, time.Now()) {
		c.lost.add("%v: status %d of %q after %v attempts, %v, %.200q", begun.Format(time.TimeOnly), status, target, attempts,
			err, reply)
	}
}

// lacking reports whether a status may say that a replica lacks what others have: one other is asked.
func lacking(status int) bool { return status == http.StatusFound || status == http.StatusNotFound }

// whole reports whether a reply of status 200 is an answer, up to its end.
func whole(reply []byte, stream bool) bool {
	if stream {
		return bytes.HasSuffix(bytes.TrimSpace(reply), []byte("data: [DONE]"))
	}
	var r struct{ Choices []json.RawMessage }
	return json.Unmarshal(reply, &r) == nil && len(r.Choices) > 0
}

// surge has as many clients as two gateways of this size would, until ctx is done. Each request is served, or
// shed.
func (c *clients) surge(ctx context.Context) {
	header := http.Header{"Content-Type": {"application/json"}}
	var wg sync.WaitGroup
	for range surgeClients {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				resp, err := c.post(context.WithoutCancel(ctx), header.Clone(), strings.NewReader(fmt.Sprintf(
					`{"model":"m","max_tokens":24,"messages":[{"role":"user","content":"surge %d %s"}]}`, c.batch.Add(1), secret)))
				if err != nil {
					c.lost.add("in a surge: %v", err)
					return
				}
				reply, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
				resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					if (err != nil || !whole(reply, false)) &&
						!c.ledger.excuses(resp.Header.Get("X-Warmroute-Target"), time.Now().Add(-time.Minute), time.Now()) {
						c.lost.add("in a surge: %v, %.200q", err, reply)
					}
				case http.StatusTooManyRequests, http.StatusServiceUnavailable,
					http.StatusBadGateway: // a liar was the last to be tried, and the others are full
					c.shed.Add(1)
					pause(ctx, 20*time.Millisecond)
				case http.StatusFound, http.StatusNotFound: // two of them lack it
				default:
					c.lost.add("in a surge: status %d, %.200q", resp.StatusCode, reply)
				}
			}
		})
	}
	wg.Wait()
}

// surgeClients is more than the greatest fleet admits.
const surgeClients = 400

func (c *clients) post(ctx context.Context, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", body)
	if err != nil {
		return nil, err
	}
	req.Header = header
	return c.http.Do(req)
}

// nonsense sends invalid requests.
func (c *clients) nonsense(ctx context.Context, random *rand.Rand, header http.Header, body []byte) {
	var in io.Reader
	switch random.IntN(5) {
	case 0:
		in = bytes.NewReader(body[:random.IntN(len(body))])
	case 1:
		in = strings.NewReader(`{"messages":` + strings.Repeat("[", 50_000))
	case 2:
		header["X-Much"] = []string{strings.Repeat("x", 100<<10)}
		in = bytes.NewReader(body)
	case 3:
		junk := make([]byte, 10_000)
		for i := range junk {
			junk[i] = byte(random.Uint32())
		}
		in = bytes.NewReader(junk)
	case 4: // a body that breaks off
		in = io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{})
	}
	resp, err := c.post(ctx, header, in)
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		resp.Body.Close()
	}
	c.refused.Add(1)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
