package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pair returns two ends of a connection in memory.
func pair(t *testing.T) (a, b net.Conn) {
	a, b = net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// connect performs both sides' handshakes.
func connect(t *testing.T, pub, sub Config) (p, s *Conn) {
	t.Helper()
	a, b := pair(t)
	for _, c := range []*Config{&pub, &sub} {
		c.Handshake = time.Second
		if c.MaxMessage == 0 {
			c.MaxMessage = 1 << 20
		}
	}
	pub.Socket, sub.Socket = "PUB", "SUB"
	// A pipe has no buffer of its own, so both sides would wait for their first write.
	errs := make(chan error, 1)
	go func() {
		var err error
		p, err = New(context.Background(), &buffered{Conn: a}, pub)
		errs <- err
	}()
	s, err := New(context.Background(), &buffered{Conn: b}, sub)
	if err := errors.Join(err, <-errs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); s.Close() })
	return p, s
}

// buffered writes without waiting for the reader, in order.
type buffered struct {
	net.Conn
	last chan struct{}
}

func (b *buffered) Write(p []byte) (int, error) {
	before, done := b.last, make(chan struct{})
	b.last = done
	p = slices.Clone(p)
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		_, _ = b.Conn.Write(p)
	}()
	return len(p), nil
}

func TestConn(t *testing.T) {
	var commands []string
	p, s := connect(t, Config{Minor: 1, Peers: []string{"SUB", "XSUB"}, Command: func(name string, data []byte) {
		commands = append(commands, name+" "+string(data))
	}}, Config{Peers: []string{"PUB"}})
	if err := s.Subscribe("a", "b"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x01a", "\x01b"} {
		if msg, err := p.Recv(); err != nil || len(msg) != 1 || string(msg[0]) != want {
			t.Fatalf("%q, %v", msg, err)
		}
	}
	_ = s.write(AppendCommand(nil, "SUBSCRIBE", []byte("c")))
	_ = s.write(AppendCommand(nil, "PING", []byte("\x00\x0actx")))
	_ = s.Send([]byte("x"))
	if msg, err := p.Recv(); err != nil || string(msg[0]) != "x" {
		t.Fatalf("%q, %v", msg, err)
	}
	if !slices.Equal(commands, []string{"SUBSCRIBE c"}) {
		t.Errorf("commands: %q", commands)
	}
	long := bytes.Repeat([]byte("long"), 100_000)
	want := [][]byte{{}, []byte("topic"), long}
	if err := p.Send(want...); err != nil {
		t.Fatal(err)
	}
	if msg, err := s.Recv(); err != nil || !slices.EqualFunc(msg, want, bytes.Equal) {
		t.Fatalf("%d frames, %v", len(msg), err)
	}
	if q := s.Quiet(); q < 0 || q > time.Minute {
		t.Errorf("quiet for %v", q)
	}
	s.Interrupt()
	if _, err := s.Recv(); err == nil {
		t.Error("Recv goes on after Interrupt")
	}
}

// TestHandshakeRefuses: a peer that does not fit is an error that says why.
func TestHandshakeRefuses(t *testing.T) {
	mechanism := Greeting(0)
	copy(mechanism[12:], "CURVE")
	for name, c := range map[string]struct {
		send []byte
		want string
	}{
		"no ZeroMQ":    {bytes.Repeat([]byte("HTTP/1.1 400\r\n"), 10), "does not speak ZeroMQ"},
		"version 2":    {append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01"), make([]byte, 60)...), "version 1"},
		"CURVE":        {mechanism, `"CURVE"`},
		"wrong socket": {AppendReady(Greeting(0), "PULL"), `"PULL"`},
		"no socket":    {AppendCommand(Greeting(0), "READY", nil), "Socket-Type"},
		"refused":      {AppendCommand(Greeting(0), "ERROR", []byte("\x04nono")), "refuses"},
		"a message":    {AppendMessage(Greeting(0), []byte("x")), "before the handshake"},
		"the end":      {Greeting(0)[:20], "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			go func() { _, _ = io.Copy(io.Discard, b) }()
			go func() { _, _ = b.Write(c.send); _ = b.Close() }()
			_, err := New(context.Background(), &buffered{Conn: a},
				Config{Socket: "SUB", Peers: []string{"PUB"}, Handshake: time.Second})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q in it", err, c.want)
			}
		})
	}
}

// TestTimes: a silent peer is noticed, one that answers heartbeats is not, and a
// message that trickles in ends.
func TestTimes(t *testing.T) {
	recv := func(t *testing.T, cfg Config, peer func(p *Conn)) time.Duration {
		var took time.Duration
		synctest.Test(t, func(t *testing.T) {
			p, s := connect(t, Config{}, cfg)
			done := make(chan struct{})
			go func() { defer close(done); peer(p) }()
			began := time.Now()
			_, err := s.Recv()
			took = time.Since(began)
			if err == nil {
				t.Error("a message")
			}
			p.Close()
			s.Close()
			<-done
		})
		return took
	}
	beat := Config{Heartbeat: time.Second, Silence: 3 * time.Second}
	if d := recv(t, beat, func(p *Conn) {}); d != 3*time.Second {
		t.Errorf("a silent peer was noticed after %v", d)
	}
	alive := recv(t, beat, func(p *Conn) {
		stop := time.AfterFunc(20*time.Second, p.Interrupt)
		defer stop.Stop()
		_, _ = p.Recv() // answers PINGs
	})
	if alive < 20*time.Second {
		t.Errorf("a peer that answers was dropped after %v", alive)
	}
	slow := Config{Silence: 3 * time.Second, Message: 10 * time.Second}
	trickle := recv(t, slow, func(p *Conn) {
		b := AppendMessage(nil, make([]byte, 200))
		for _, c := range b {
			_ = p.write([]byte{c})
			time.Sleep(time.Second)
		}
	})
	if trickle != 10*time.Second {
		t.Errorf("a message that trickles in ended after %v", trickle)
	}
	// Commands do not begin a message.
	commands := recv(t, slow, func(p *Conn) {
		for range 30 {
			_ = p.write(AppendCommand(nil, "X", nil))
			time.Sleep(time.Second)
		}
	})
	if commands != 32*time.Second {
		t.Errorf("a peer that sends commands was dropped after %v", commands)
	}
}

// TestGrow: what a message takes beyond its first 64 KiB is asked for as it comes,
// and no more than twice of that is taken.
func TestGrow(t *testing.T) {
	for _, frames := range [][]int{{100}, {64 << 10}, {64<<10 + 1}, {1 << 20}, {60_000, 60_000, 60_000},
		{10, 8, 3 << 20}} {
		var msg [][]byte
		size := 0
		for _, n := range frames {
			msg = append(msg, make([]byte, n))
			size += n
		}
		wire := AppendMessage(nil, msg...)
		asked := 0
		r := reader{r: bufio.NewReader(bytes.NewReader(wire)), limit: 8 << 20,
			grow: func(n int) error { asked += n; return nil }}
		if _, err := r.message(nil); err != nil {
			t.Fatal(err)
		}
		if asked > size || size-asked > firstRead {
			t.Errorf("%v: %d bytes asked for", frames, asked)
		}
		// Cut short, it has requested little more than the received bytes.
		for _, cut := range []int{len(wire) / 2, len(wire) / 10} {
			asked = 0
			r.r = bufio.NewReader(bytes.NewReader(wire[:cut]))
			if _, err := r.message(nil); err == nil {
				t.Fatal("half a message")
			}
			if asked > 2*cut+firstRead {
				t.Errorf("%v: %d bytes asked for where %d came", frames, asked, cut)
			}
		}
	}
	full := errors.New("full")
	r := reader{r: bufio.NewReader(bytes.NewReader(AppendMessage(nil, make([]byte, 1<<20)))), limit: 8 << 20,
		grow: func(int) error { return full }}
	if _, err := r.message(nil); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}

func TestBounds(t *testing.T) {
	head := func(size uint64) []byte {
		return []byte{Long, byte(size >> 56), byte(size >> 48), byte(size >> 40), byte(size >> 32), byte(size >> 24),
			byte(size >> 16), byte(size >> 8), byte(size)}
	}
	many := bytes.Repeat(AppendFrame(nil, More, nil), MaxFrames+1)
	for name, b := range map[string][]byte{
		"a frame too long": head(1<<20 + 1), "the longest": head(math.MaxUint64), "over 32 bits": head(1 << 32),
		"over 31 bits":    head(1 << 31),
		"frames too many": many, "a command too long": append([]byte{Command | Long}, head(maxCommand + 1)[1:]...),
		"a message too long": AppendMessage(nil, make([]byte, 1<<19), make([]byte, 1<<19), []byte("x")),
	} {
		r := reader{r: bufio.NewReader(bytes.NewReader(b)), limit: 1 << 20}
		if _, err := r.message(nil); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add(AppendMessage(nil, []byte("topic"), make([]byte, 8), make([]byte, 300)))
	f.Add(AppendCommand(nil, "PING", []byte("\x00\x0aabc")))
	f.Add(AppendReady(nil, "PUB"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = ReadGreeting(bytes.NewReader(data))
		command := func(_ string, data []byte) error {
			_, _ = property(data, "Socket-Type")
			return nil
		}
		r := reader{r: bufio.NewReader(bytes.NewReader(data)), limit: 1 << 16, command: command}
		for {
			msg, err := r.message(nil)
			if err != nil {
				break
			}
			size := 0
			for _, f := range msg {
				size += len(f)
			}
			if len(msg) == 0 || len(msg) > MaxFrames || size > 1<<16 {
				t.Fatalf("%d frames of %d bytes", len(msg), size)
			}
			again := reader{r: bufio.NewReader(bytes.NewReader(AppendMessage(nil, msg...))), limit: 1 << 16}
			got, err := again.message(nil)
			if err != nil || !cmp.Equal(msg, got) {
				t.Fatalf("written and read again: %v", err)
			}
		}
	})
}

func ExampleAppendMessage() {
	fmt.Printf("%q\n", AppendMessage(nil, []byte("topic"), []byte("payload")))
	// Output: "\x01\x05topic\x00\apayload"
}
