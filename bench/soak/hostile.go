package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// attackEvery is the length of a period with the hostile clients, and of the one without them that follows: both see
// the same faults and the same load of the machine.
const attackEvery = 10 * time.Second

// hostile are clients that want to take the gateway from the others, with all that they send. They come from one
// address, which is another one than that of the good clients where the system has more than one on loopback.
type hostile struct {
	address string // of the gateway
	dialer  net.Dialer
	sent    [9]atomic.Int64 // by attacks

	mu      sync.Mutex
	changes []time.Time // the attack began, ended, began ...
	healthy [2]health   // of good requests: while it rested, and while it went on
}

// health are the ends of good requests.
type health struct {
	sent, whole int
	times       []time.Duration // of those that were answered whole
}

// attack is one kind of hostile client. It sends once, or holds on until ctx is done.
type attack struct {
	name    string
	clients int
	run     func(ctx context.Context, h *hostile) error
}

var attacks = [...]attack{
	{"announced bodies", 16, func(ctx context.Context, h *hostile) error {
		return h.raw(ctx, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33554431\r\n\r\n{", true)
	}},
	{"slow headers", 8, func(ctx context.Context, h *hostile) error {
		return h.raw(ctx, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ", true)
	}},
	{"huge headers", 2, func(ctx context.Context, h *hostile) error {
		const much = 256 << 10
		return h.raw(ctx, "GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Much: "+strings.Repeat("x", much)+"\r\n\r\n", false)
	}},
	{"deep JSON", 2, func(ctx context.Context, h *hostile) error {
		return h.post(ctx, "", []byte(`{"model":"m","messages":`+strings.Repeat(`[{"content":`, 100_000)))
	}},
	{"short members", 1, func(ctx context.Context, h *hostile) error {
		return h.post(ctx, "", []byte(`{"model":"m",`+strings.Repeat(`"a":1,`, 700_000)+`"messages":[]}`))
	}},
	{"bombs", 1, func(ctx context.Context, h *hostile) error { return h.post(ctx, "gzip", bomb()) }},
	{"KV transfer", 2, func(ctx context.Context, h *hostile) error {
		return h.post(ctx, "", []byte(`{"model":"m","kv_transfer_params":{"do_remote_prefill":true},"messages":[]}`))
	}},
	{"foreign paths", 2, func(ctx context.Context, h *hostile) error {
		return h.raw(ctx, "GET /v1/..%2fmetrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false)
	}},
	{"readers that do not read", 8, func(ctx context.Context, h *hostile) error {
		const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"stuck"}]}`
		return h.raw(ctx, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(body), body), true)
	}},
}

// bomb is a body that is much larger without its coding.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.CopyN(w, zeros{}, 30<<20)
	_ = w.Close()
	return b.Bytes()
})

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func newHostile(url string) *hostile {
	h := &hostile{address: strings.TrimPrefix(url, "http://")}
	h.dialer.Timeout = 10 * time.Second
	if runtime.GOOS == "linux" {
		h.dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	}
	return h
}

// raw sends text on a connection of its own. It keeps the connection, without reading, until something ends it,
// or reads the answer.
func (h *hostile) raw(ctx context.Context, text string, keep bool) error {
	c, err := h.dialer.DialContext(ctx, "tcp", h.address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return nil // refused before all of it was sent
	}
	if keep {
		pause(ctx, 3*time.Second)
		return nil
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	return nil
}

// post sends a body and reads the answer, or what there is of it.
func (h *hostile) post(ctx context.Context, coding string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.address+"/v1/chat/completions",
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if coding != "" {
		req.Header.Set("Content-Encoding", coding)
	}
	c, err := h.dialer.DialContext(ctx, "tcp", h.address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if req.Write(c) != nil {
		return nil
	}
	if resp, err := http.ReadResponse(bufio.NewReader(c), req); err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		resp.Body.Close()
	}
	return nil
}

// run rests and attacks by turns, each as long as every says, until ctx is done.
func (h *hostile) run(ctx context.Context, every time.Duration) {
	for pause(ctx, every) {
		h.change()
		during, stop := context.WithTimeout(ctx, every)
		var wg sync.WaitGroup
		for i := range attacks {
			for range attacks[i].clients {
				wg.Go(func() {
					for during.Err() == nil {
						if attacks[i].run(during, h) == nil {
							h.sent[i].Add(1)
						}
						pause(during, 50*time.Millisecond)
					}
				})
			}
		}
		wg.Wait()
		stop()
		h.change()
	}
}

func (h *hostile) change() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, time.Now())
}

// often is the least length of a run that is attacked by turns to its end. A shorter one is attacked while it warms
// up, so that there are readings enough without an attack.
const often = 10 * time.Minute

// settling is how long after an attack its bodies may be held still.
const settling = 3 * time.Second

// quiet returns the readings while no attack went on, and none had ended a moment ago.
func (h *hostile) quiet(all []sample) []sample {
	if h == nil {
		return all
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(s sample) bool {
		n := 0 // changes before it
		for n < len(h.changes) && !h.changes[n].After(s.at) {
			n++
		}
		return n%2 == 1 || n > 0 && s.at.Sub(h.changes[n-1]) < settling
	})
}

// ended notes the end of a good request that began at begun, unless a period began or ended meanwhile.
func (h *hostile) ended(begun time.Time, whole bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.changes); n > 0 && h.changes[n-1].After(begun) {
		return
	}
	s := &h.healthy[len(h.changes)%2]
	s.sent++
	if whole {
		s.whole++
		s.times = append(s.times, time.Since(begun))
	}
}

// judge prints the table of the good clients' success with and without the attack.
func (h *hostile) judge(v *verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(v.out, "\n%-20s %9s %9s %9s %9s\n", "good clients", "requests", "whole", "p50 ms", "p99 ms")
	for i, name := range []string{"without the attack", "with it"} {
		s := &h.healthy[i]
		slices.Sort(s.times)
		fmt.Fprintf(v.out, "%-20s %9d %8.2f%% %9.1f %9.1f\n", name, s.sent, 100*s.share(), ms(s.times, 0.5),
			ms(s.times, 0.99))
	}
	var did []string
	missing := ""
	for i, a := range attacks {
		did = append(did, fmt.Sprintf("%s %d", a.name, h.sent[i].Load()))
		if h.sent[i].Load() == 0 {
			missing = a.name
		}
	}
	fmt.Fprintln(v.out)
	v.check("attacks: "+strings.Join(did, ", "), unless(missing != "", "never: "+missing))
}

func (s *health) share() float64 { return float64(s.whole) / float64(max(1, s.sent)) }

// ms is a quantile of sorted times in milliseconds.
func ms(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))]) / float64(time.Millisecond)
}
