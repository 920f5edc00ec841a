package sharing

import (
	"context"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden frames")

// goldenFrames returns the frames of a small history, in hexadecimal, each with the kind of frame or request before it.
func goldenFrames(t testing.TB) []string {
	now := time.Unix(1_700_000_000, 0)
	var out []string
	kinds := []string{"?", "live", "hello", "bye", "repair", "snapshot"}
	wire := recorder(func(b []byte) { out = append(out, kinds[b[1]]+" "+hex.EncodeToString(b)) })
	n := New(Config{
		Bus: wire, Key: testKey(t), Subject: "fleet", Name: "one", ID: 0x123456789abc, MaxMarks: 1024,
		Interval: time.Millisecond, Hello: time.Second, Silence: time.Second, MaxLag: time.Second, LagFor: time.Second,
		Cache: true, Load: true, Now: func() time.Time { return now }, Spawn: func(f func()) { f() },
	})
	step := func() {
		now = now.Add(100 * time.Millisecond)
		n.Poll()
	}
	step()
	text := strings.Repeat("0123456789abcdef", 160)
	c := n.Chain("model", text)
	n.Sent("replica-0", c)
	n.Local("replica-0").Set(1, 640, 640)
	step()
	n.More("replica-0", n.Extend(c, text, strings.Repeat("reply", 200)))
	n.Local("replica-0").Set(0, 0, 0)
	step()
	again := n.Chain("model", text)
	n.Sent("replica-1", again)
	step()
	n.Unsent("replica-1", again)
	n.Deny("replica-0", 20*time.Second)
	n.Forget("replica-1")
	step()
	n.Sent("replica-1", n.Chain("model", text))
	step()
	for _, ask := range []header{{kind: kindRepair, node: 7}, {kind: kindSnapshot, node: 7}} {
		b := ask.append(nil, n.cfg.Key)
		if ask.kind == kindRepair {
			b = append(b, 0, 3)
		} else {
			b = append(b, 0)
		}
		wire(b)
		wire(n.answer(b))
	}
	n.Bye()
	return out
}

// recorder is a Bus that sees what is published.
type recorder func([]byte)

func (r recorder) Publish(_ string, data []byte) error                   { r(data); return nil }
func (recorder) Subscribe(string, func([]byte)) (func(), error)          { return func() {}, nil }
func (recorder) Serve(string, func([]byte) []byte) (func(), error)       { return func() {}, nil }
func (recorder) Request(context.Context, string, []byte) ([]byte, error) { return nil, errNobody }

// The frames stay as they are as long as version does.
func TestGolden(t *testing.T) {
	name := filepath.Join("testdata", "frames.txt")
	got := strings.Join(goldenFrames(t), "\n") + "\n"
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the frames have changed; if their version has, run with -update\n%s", got)
	}
}

// seeds adds the golden frames to a fuzz test.
func seeds(f *testing.F) {
	for _, line := range goldenFrames(f) {
		_, data, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(data)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{})
	f.Add([]byte{version, kindLive})
}

// fuzzed is a Node with a history and a peer.
func fuzzed(f testing.TB) *Node {
	now := time.Unix(1_700_000_000, 0)
	return New(Config{
		Bus: recorder(func([]byte) {}), Key: testKey(f), Subject: "fleet", ID: 5, MaxMarks: 1024,
		Interval: time.Millisecond, Hello: time.Second, Silence: time.Second, MaxLag: time.Second, LagFor: time.Second,
		Cache: true, Load: true, Now: func() time.Time { return now }, Spawn: func(f func()) { f() },
	})
}

// Any frame is taken in or is an error; nothing panics, and nothing grows beyond its bound.
func FuzzReceive(f *testing.F) {
	seeds(f)
	n := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		n.Receive(data)
		n.Poll()
		if s := n.State(); s.Marks > 1024 || len(s.Peers) > maxPeers || s.Targets > maxTarget {
			t.Fatalf("%+v", s)
		}
	})
}

// Any request has an answer that fits a frame, or none.
func FuzzAnswer(f *testing.F) {
	seeds(f)
	n := fuzzed(f)
	for range 200 {
		n.Sent("a", n.Chain("m", strings.Repeat("x", 20*Chunk)))
		n.flush(n.now())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if reply := n.answer(data); len(reply) > 256<<10 {
			t.Fatalf("%d bytes", len(reply))
		}
	})
}

// Any page and any repair is taken in or is an error.
func FuzzReply(f *testing.F) {
	seeds(f)
	n := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader{b: data}
		r.header(n.cfg.Key)
		page := r
		page.uvarint()
		n.readPage(&page, n.now())
		p := &peer{gauges: map[uint16]gaugeOf{}}
		n.readFacts(p, &r, 1, stampOf(n.now()))
		if s := n.State(); s.Marks > 1024 {
			t.Fatalf("%+v", s)
		}
	})
}

// Frames of another version, or of another secret, are ignored and reported once.
func TestIgnored(t *testing.T) {
	w := newWorld(t, 1, 1)
	var got []error
	w.nodes[0].cfg.Hooks.Ignored = func(err error) { got = append(got, err) }
	other, err := NewKey("another secret of a fleet", "fleet")
	if err != nil {
		t.Fatal(err)
	}
	h := header{kind: kindBye, node: 9}
	for range 3 {
		b := h.append(nil, other)
		w.nodes[0].Receive(b)
		b[0] = 2
		w.nodes[0].Receive(b)
	}
	if len(got) != 2 || w.nodes[0].State().Bad != 6 || len(w.nodes[0].State().Peers) != 0 {
		t.Errorf("%v, %+v", got, w.nodes[0].State())
	}
}
