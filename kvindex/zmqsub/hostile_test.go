package zmqsub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/zmtp"
)

// hostile serves every connection with serve.
func hostile(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return "tcp://" + l.Addr().String()
}

func asPeer(c net.Conn, socket string) {
	_, _ = c.Write(zmtp.Greeting(0))
	_, _ = c.Write(zmtp.AppendReady(nil, socket))
}

// TestHostilePeers: whatever is at the other end, the subscriber goes on trying,
// keeps little, and ends with its context.
func TestHostilePeers(t *testing.T) {
	endless := bytes.Repeat(zmtp.AppendFrame(nil, zmtp.More, make([]byte, 100)), 100)
	peers := map[string]func(net.Conn){
		"garbage":         func(c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte("HTTP/1.1 400\r\n"), 100)) },
		"nothing":         func(c net.Conn) {},
		"silence":         func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"wrong socket":    func(c net.Conn) { asPeer(c, "PULL"); _, _ = io.Copy(io.Discard, c) },
		"half a greeting": func(c net.Conn) { _, _ = c.Write(zmtp.Greeting(0)[:20]) },
		"half open":       func(c net.Conn) { asPeer(c, "PUB"); _, _ = io.Copy(io.Discard, c) },
		"a huge frame": func(c net.Conn) {
			asPeer(c, "PUB")
			_, _ = c.Write(append([]byte{zmtp.Long}, "\x7f\xff\xff\xff\xff\xff\xff\xff"...))
		},
		"endless message": func(c net.Conn) {
			asPeer(c, "PUB")
			for range 1000 {
				if _, err := c.Write(endless); err != nil {
					return
				}
			}
		},
		"endless commands": func(c net.Conn) {
			asPeer(c, "PUB")
			for range 1000 {
				if _, err := c.Write(zmtp.AppendCommand(nil, "X", nil)); err != nil {
					return
				}
			}
		},
	}
	for name, serve := range peers {
		for n, nw := range networks {
			t.Run(name+", "+n, func(t *testing.T) {
				t.Parallel()
				d := newDiary(t)
				arrived := make(chan struct{}, 100)
				endpoint := hostile(t, func(c net.Conn) {
					select {
					case arrived <- struct{}{}:
					default:
					}
					serve(c)
				})
				s := start(t, nw, Config{Endpoint: endpoint, Targets: []Target{{ID: "a", Replay: endpoint}}, Index: d,
					Heartbeat: 100 * time.Millisecond, DialTimeout: 300 * time.Millisecond})
				for range 3 {
					select {
					case <-arrived:
					case <-time.After(15 * time.Second):
						t.Fatal("it has given up")
					}
				}
				if d.Trusted("a") || s.State("a") == Live {
					t.Errorf("%v, trusted %v", s.State("a"), d.Trusted("a"))
				}
			})
		}
	}
}

// TestHalfOpen: a peer that says nothing any more is noticed, and what was known
// is not believed for ever.
func TestHalfOpen(t *testing.T) {
	for n, nw := range networks {
		t.Run(n, func(t *testing.T) {
			noLeak(t)
			once := make(chan struct{}, 1)
			once <- struct{}{}
			endpoint := hostile(t, func(c net.Conn) {
				if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
					return // only looked whether anybody is there
				}
				select {
				case <-once:
					asPeer(c, "PUB")
					_, _ = io.ReadFull(c, make([]byte, 54+27)) // the rest of its greeting, and READY
					_, _ = c.Write(zmtp.AppendMessage(nil, nil, make([]byte, 8), batch(0)))
				default:
				}
				_, _ = io.Copy(io.Discard, c)
			})
			d := newDiary(t)
			s := start(t, nw, Config{Endpoint: endpoint, Targets: []Target{{ID: "a"}}, Index: d,
				Heartbeat: 50 * time.Millisecond, StaleAfter: time.Millisecond})
			eventually(t, "it is live", is(s, "a", Live))
			eventually(t, "it is down and stale", func() bool { return s.State("a") == Down && !d.Trusted("a") })
		})
	}
}

func TestBindManyTargets(t *testing.T) {
	noLeak(t)
	d := newDiary(t)
	s := start(t, nil, Config{Endpoint: "tcp://127.0.0.1:0", Bind: true, Index: d, Targets: []Target{
		{ID: "one", Topic: "kv@1@"}, {ID: "ten", Topic: "kv@10@"}, {ID: "adapter", Topic: "kv@1@big"}}})
	eventually(t, "it listens", func() bool { return s.Addr() != "" })
	engine := func() *conn {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		w, err := newConn(context.Background(), c, role{"PUB", []string{"SUB"}}, nil, limits{message: 1 << 20,
			handshake: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.close)
		return w
	}
	tell := func(w *conn, topic string, seq uint64) {
		if err := w.send([]byte(topic), binary.BigEndian.AppendUint64(nil, seq), batch(int(seq))); err != nil {
			t.Fatal(err)
		}
	}
	a, b := engine(), engine()
	for seq := range uint64(5) {
		tell(a, "kv@1@small", seq)
		tell(b, "kv@10@small", seq)
	}
	tell(b, "kv@1@big", 0)
	tell(b, "nobody", 0)
	eventually(t, "all are fed", func() bool {
		return d.holds("one", 0, 4) && d.holds("ten", 0, 4) && d.holds("adapter", 0, 0)
	})
	b.close()
	eventually(t, "those of the lost connection are down", func() bool {
		return s.State("ten") == Down &&
			s.State("adapter") == Down
	})
	if s.State("one") != Live {
		t.Errorf("one is %v", s.State("one"))
	}
	b = engine()
	tell(b, "kv@10@small", 0)
	eventually(t, "it comes again", func() bool { return d.holds("ten", 0, 0) && s.State("ten") == Live })
	if s.Stats().Unknown != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// TestEgressWhenDialled: what is checked is the address that is dialled.
func TestEgressWhenDialled(t *testing.T) {
	endpoint := hostile(t, func(c net.Conn) { t.Error("connected") })
	for n, open := range networks {
		nw, err := open(egress.Policy{BlockLoopback: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = nw.dial(context.Background(), subscriber, strings.TrimPrefix(endpoint, "tcp://"), nil,
			limits{handshake: time.Second})
		var denied *egress.DeniedError
		if !errors.As(err, &denied) {
			t.Errorf("%s: %v", n, err)
		}
		nw.close()
	}
}

func TestRankEndpoint(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		rank     int
		want     string
	}{
		{"tcp://a:5557", 0, "tcp://a:5557"}, {"tcp://*:5557", 3, "tcp://*:5560"}, {"tcp://[::1]:1", 1, "tcp://[::1]:2"},
		{"tcp://a:65535", 1, ""}, {"ipc://a", 1, ""}, {"tcp://a:1", -1, ""},
	} {
		got, err := RankEndpoint(c.endpoint, c.rank)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("RankEndpoint(%q, %d) = %q, %v; want %q", c.endpoint, c.rank, got, err, c.want)
		}
	}
}

func TestReplyFramings(t *testing.T) {
	seq := []byte("\x00\x00\x00\x00\x00\x00\x00\x05")
	for _, frames := range [][][]byte{{nil, seq, []byte("p")}, {nil, []byte("topic"), seq, []byte("p")}, {nil, nil, seq,
		[]byte("p")}, {seq, []byte("p")}} {
		n, payload, err := reply(frames)
		if n != 5 || string(payload) != "p" || err != nil {
			t.Errorf("reply(%q) = %d, %q, %v", frames, n, payload, err)
		}
	}
	for _, frames := range [][][]byte{nil, {nil}, {seq}, {nil, seq}, {nil, seq[:7], nil}, {nil, nil, nil, seq, nil}} {
		if n, _, err := reply(frames); err == nil {
			t.Errorf("reply(%q) = %d", frames, n)
		}
	}
}
