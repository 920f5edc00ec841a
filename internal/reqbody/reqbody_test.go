package reqbody_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/membudget"
)

func mustNew(t testing.TB, c reqbody.Config) *reqbody.Pool {
	t.Helper()
	p, err := reqbody.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func request(body io.Reader, from string) *http.Request {
	r := httptest.NewRequest("POST", "/", body)
	r.RemoteAddr = from
	return r
}

func TestConfig(t *testing.T) {
	_, err := reqbody.New(reqbody.Config{MaxBody: -1, MaxBodies: -1, Timeout: -1, Rate: -1, MaxClient: -1})
	for _, field := range []string{"MaxBody", "MaxBodies", "Timeout", "Rate", "MaxClient"} {
		if err == nil || !strings.Contains(err.Error(), "reqbody: "+field+" is -1") {
			t.Errorf("%s: %v", field, err)
		}
	}
	var bad *router.ConfigError
	if !errors.As(err, &bad) || bad.Field != "MaxBody" {
		t.Errorf("%v", err)
	}
}

// Bodies of all lengths are read whole, known or not, and all is given back.
func TestRead(t *testing.T) {
	p := mustNew(t, reqbody.Config{MaxBody: 100_000, MaxBodies: 300_000})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 8191, 8192, 8193, 16384, 50_000, 99_999, 100_000, 100_001, 200_000} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		for _, known := range []bool{true, false} {
			r := request(io.MultiReader(bytes.NewReader(data)), "10.0.0.1:1")
			if r.ContentLength = -1; known {
				r.ContentLength = int64(n)
			}
			b, err := p.Read(httptest.NewRecorder(), r)
			if n > 100_000 {
				if !errors.Is(err, reqbody.ErrTooLarge) || p.Used() != 0 {
					t.Errorf("%d bytes, known %v: %v, %d used", n, known, err, p.Used())
				}
				continue
			}
			if err != nil || !bytes.Equal(b.Bytes(), data) {
				t.Errorf("%d bytes, known %v: %v", n, known, err)
				continue
			}
			if used := p.Used(); used < int64(n) || used > 2*int64(n)+8193 || known && used > max(int64(n), 8192)+1 {
				t.Errorf("%d bytes, known %v, take %d", n, known, used)
			}
			b.Release()
			if p.Used() != 0 {
				t.Errorf("%d bytes are not given back", p.Used())
			}
		}
	}
}

// A body is charged as it comes, not as it is announced.
func TestAnnounced(t *testing.T) {
	p := mustNew(t, reqbody.Config{})
	pr, pw := io.Pipe()
	r := request(pr, "10.0.0.1:1")
	r.ContentLength = 32<<20 - 1
	done := make(chan error)
	go func() {
		b, err := p.Read(httptest.NewRecorder(), r)
		if err == nil {
			b.Release()
		}
		done <- err
	}()
	sent := 0
	for _, n := range []int{1, 8191, 1, 100_000, 500_000} {
		if _, err := pw.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		sent += n
		if used := p.Used(); used > max(2*int64(sent), 8<<10)+1 {
			t.Errorf("%d bytes came, and %d are taken", sent, used)
		}
	}
	_ = pw.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-done; !errors.Is(err, io.ErrUnexpectedEOF) || p.Used() != 0 {
		t.Errorf("%v, %d used", err, p.Used())
	}
}

// One client's bodies leave the others' part alone; ClientOf takes the ports of one
// address, and a network of IPv6, for one client.
func TestShares(t *testing.T) {
	p := mustNew(t, reqbody.Config{MaxBodies: 1 << 20, MaxClient: 1 << 18})
	var held []*reqbody.Body
	read := func(from string) error {
		b, err := p.Read(httptest.NewRecorder(), request(bytes.NewReader(make([]byte, 100_000)), from))
		if err == nil {
			held = append(held, b)
		}
		return err
	}
	for i, want := range []error{nil, nil, reqbody.ErrBusy, reqbody.ErrBusy} {
		if err := read(fmt.Sprintf("[2001:db8::%d]:%d", i, 1000+i)); !errors.Is(err, want) {
			t.Errorf("body %d: %v, want %v", i, err, want)
		}
	}
	for _, other := range []string{"[2001:db8:0:1::1]:1", "10.0.0.1:1", "[::ffff:10.0.0.2]:1", "@"} {
		if err := read(other); err != nil {
			t.Errorf("%s: %v", other, err)
		}
	}
	for _, b := range held {
		b.Release()
	}
	if err := read("[2001:db8::9]:1"); err != nil || p.Used() == 0 {
		t.Errorf("after all are given back: %v", err)
	}
	for from, want := range map[string]string{
		"10.0.0.1:5": "10.0.0.1", "[::ffff:10.0.0.1]:5": "10.0.0.1", "[2001:db8::1]:5": "2001:db8::/64", "pipe": "pipe",
	} {
		if got := reqbody.ClientOf(request(nil, from)); got != want {
			t.Errorf("%s is %s, want %s", from, got, want)
		}
	}
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A body that comes too slowly is given up, however much of it has come before; one
// that keeps the speed takes as long as it takes.
func TestLeastSpeed(t *testing.T) {
	const timeout = time.Minute // 60,000 bytes each time
	for name, c := range map[string]struct {
		first, piece int
		every        time.Duration
		want         int
		least, most  time.Duration
	}{
		"nothing":          {0, 0, 0, 408, timeout, timeout},
		"much, then stuck": {1_000_000, 0, 0, 408, timeout, timeout},
		"much, then drops": {1_000_000, 1, time.Second, 408, timeout, 2 * timeout},
		"a drop at a time": {0, 1, time.Second, 408, timeout, timeout},
		"fast enough":      {0, 20_000, 15 * time.Second, 200, 20 * time.Minute, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := mustNew(t, reqbody.Config{Timeout: timeout, Rate: 1000})
				ln := make(pipes, 1)
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					b, err := p.Read(w, r)
					var slow net.Error
					switch {
					case err == nil:
						b.Release()
					case errors.As(err, &slow) && slow.Timeout():
						w.WriteHeader(http.StatusRequestTimeout)
					default:
						w.WriteHeader(http.StatusBadRequest)
					}
				})}
				served := make(chan error, 1)
				go func() { served <- srv.Serve(ln) }()
				conn, far := net.Pipe()
				ln <- far
				start := time.Now()
				over := make(chan struct{})
				go func() {
					defer close(over)
					const length = 2_000_000
					_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
						length, strings.Repeat("x", c.first))
					for sent := c.first; err == nil && c.piece > 0 && sent < length; sent += c.piece {
						time.Sleep(c.every)
						_, err = conn.Write(bytes.Repeat([]byte("x"), c.piece))
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if took := time.Since(start); resp.StatusCode != c.want || took < c.least || took > c.most {
					t.Errorf("status %d after %v, want %d", resp.StatusCode, took, c.want)
				}
				_ = conn.Close()
				_ = srv.Close()
				<-served
				<-over
				if p.Used() != 0 {
					t.Errorf("%d bytes are not given back", p.Used())
				}
			})
		})
	}
}

func TestRefused(t *testing.T) {
	r := reqbody.NewRefused(append(reqbody.KVTransfer(), "priority")...)
	deep := `{"vllm_xargs":` + strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)
	arrays := `{"vllm_xargs":` + strings.Repeat("[", 20) + "1" + strings.Repeat("]", 20)
	deeper := `{"messages":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for body, want := range map[string]string{
		`{"kv_transfer_params":{"do_remote_prefill":true}}`:                                "kv_transfer_params",
		` { "model" : "m" , "bootstrap_room" : 7 }`:                                        "bootstrap_room",
		`{"messages":[{"role":"user","content":"}{\""}],"bootstrap_host":["a"]}`:           "bootstrap_host",
		`{"kv\u005ftransfer_params":{}}`:                                                   "kv_transfer_params",
		`{"\u006b\u0076_transfer_params":{}}`:                                              "kv_transfer_params",
		`{"kv_transfer_params":null,"kv_transfer_params":{}}`:                              "kv_transfer_params",
		`{"vllm_xargs":{"kv_transfer_params":"x"}}`:                                        "kv_transfer_params",
		`{"sampling_params":{"max_tokens":1,"extra_args":{"kv_transfer_params":{}}}}`:      "kv_transfer_params",
		`{"sampling_params":[{"extra_args":{}},{"extra_args":{"ec_transfer_params":{}}}]}`: "ec_transfer_params",
		`{"priority":1}`:                       "priority",
		"\xef\xbb\xbf" + `{"priority":1}`:      "priority",
		deep + `,"disaggregated_params":{}}`:   "disaggregated_params",
		arrays + `,"disaggregated_params":{}}`: "disaggregated_params",
		deeper + `,"disaggregated_params":{}}`: "disaggregated_params",
		`{"a":1,"priority":1`:                  "priority", // cut off

		`{"kv_transfer_params":null}`:                             "",
		`{"kv_transfer_paramsx":1,"messages":["bootstrap_room"]}`: "",
		`{"metadata":{"priority":1}}`:                             "",
		`["kv_transfer_params"]`:                                  "",
		`{}`:                                                      "",
		``:                                                        "",
		"\x00\xff\x00\x01":                                        "",
		`no JSON`:                                                 "",
	} {
		var got *reqbody.MemberError
		err := r.Check([]byte(body))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", body, err)
		case want != "" && (!errors.As(err, &got) || got.Name != want || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
	for _, body := range []string{"\x00{\x00\"", "{\x00\"\x00", "\xff\xfe{\x00", "\xfe\xff\x00{", "\x00\x00\x00{",
		"{\x00\x00\x00", " \x00{\x00"} {
		if err := r.Check([]byte(body)); !errors.Is(err, reqbody.ErrEncoding) {
			t.Errorf("%q: %v", body, err)
		}
	}
	if reqbody.NewRefused() != nil || reqbody.NewRefused().Check([]byte(`{"priority":1}`)) != nil {
		t.Error("an empty set refuses something")
	}
}

// FuzzRefused holds Check to encoding/json: a member that this finds is found.
func FuzzRefused(f *testing.F) {
	r := reqbody.NewRefused(reqbody.KVTransfer()...)
	for _, s := range []string{
		`{"kv_transfer_params":{}}`, `{"a":[{"b":"\""}],"vllm_xargs":{"c":[[1]],"bootstrap_room":1}}`,
		`{"sampling_params":{"extra_args":{"decode_tp_size":[2]}}}`,
		`{"vllm_xargs":[[[[[[[[[[[[1]]]]]]]]]]]],"bootstrap_room":2}`, `{"\u0062ootstrap_room":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := r.Check(body)
		var top map[string]json.RawMessage
		if json.Unmarshal(body, &top) != nil {
			return
		}
		want := found(top)
		for _, c := range [][]string{{"vllm_xargs"}, {"sampling_params", "extra_args"}} {
			in := top
			for _, name := range c {
				var next map[string]json.RawMessage
				_ = json.Unmarshal(in[name], &next)
				in = next
			}
			want = want || found(in)
		}
		if want && err == nil {
			t.Errorf("%q passes", body)
		}
	})
}

func found(members map[string]json.RawMessage) bool {
	for _, n := range reqbody.KVTransfer() {
		if v, ok := members[n]; ok && string(v) != "null" {
			return true
		}
	}
	return false
}

func BenchmarkCheck(b *testing.B) {
	r := reqbody.NewRefused(reqbody.KVTransfer()...)
	body := []byte(`{"model":"a","messages":[{"role":"user","content":"` + strings.Repeat(`a line of text\n`, 1000) +
		`"}],"stream":true}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := r.Check(body); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMemory: bodies take the memory of their account, buffers that are used again as much as others, and give it back.
func TestMemory(t *testing.T) {
	b, err := membudget.New(membudget.Config{Limit: 1 << 20, Shares: map[string]float64{membudget.Bodies: 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	a := b.Account(membudget.Bodies)
	p := mustNew(t, reqbody.Config{Memory: a, MaxBody: 4 << 20})
	read := func(n int) (*reqbody.Body, error) {
		return p.Read(httptest.NewRecorder(), request(bytes.NewReader(make([]byte, n)), "10.0.0.1:1"))
	}
	for round := range 3 {
		large, err := read(300 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(300 << 10); !errors.Is(err, reqbody.ErrBusy) || !errors.Is(err, membudget.ErrShed) {
			t.Errorf("round %d: %v", round, err)
		}
		large.Release()
		var shed *membudget.Error
		if _, err := read(600 << 10); !errors.Is(err, reqbody.ErrTooLarge) || !errors.As(err, &shed) || !shed.Never {
			t.Errorf("round %d: one that can never fit: %v", round, err)
		}
		var small []*reqbody.Body
		for range 20 {
			s, err := read(10)
			if err != nil {
				t.Fatal(err)
			}
			if small = append(small, s); cap(s.Bytes()) > 16<<10 {
				t.Errorf("round %d: a small body has %d bytes", round, cap(s.Bytes()))
			}
		}
		for _, s := range small {
			s.Release()
		}
		if a.Used() != 0 || p.Used() != 0 {
			t.Errorf("round %d: %d and %d bytes are left", round, a.Used(), p.Used())
		}
	}
}
