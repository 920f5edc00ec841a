package zmqsub

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/vllmtest"
)

// publisher is the engine's side of the wire.
type publisher interface {
	Endpoint() string
	ReplayEndpoint() string
	Publish(payload []byte) uint64
	SetNext(seq uint64)
	Drop(func(seq uint64) bool)
	Break()
	Restart()
	Close()
}

// publishers are our own and, with the tag libzmq, libzmq's.
var publishers = map[string]func(testing.TB, vllmtest.Events) publisher{
	"own publisher": func(t testing.TB, e vllmtest.Events) publisher {
		p, err := vllmtest.NewPublisher(e)
		if err != nil {
			t.Fatal(err)
		}
		return p
	},
}

// networks are our own and, with the tag libzmq, libzmq's.
var networks = map[string]func(egress.Policy) (network, error){
	"own": func(p egress.Policy) (network, error) { return plain{p.Dialer()}, nil },
}

// everywhere runs a test with every network against every publisher.
func everywhere(t *testing.T, test func(*testing.T, func(egress.Policy) (network, error), func(testing.TB,
	vllmtest.Events) publisher)) {
	for n, nw := range networks {
		for p, pub := range publishers {
			t.Run(n+", "+p, func(t *testing.T) {
				noLeak(t)
				test(t, nw, pub)
			})
		}
	}
}

// noLeak fails the test where a goroutine of ours is left at its end.
func noLeak(t *testing.T) {
	t.Cleanup(func() {
		ours := func() string {
			buf := make([]byte, 1<<20)
			buf = buf[:runtime.Stack(buf, true)]
			var left []string
			for g := range strings.SplitSeq(string(buf), "\n\n") {
				if strings.Contains(g, "zmqsub.") && !strings.Contains(g, "testing.tRunner") && !strings.Contains(g, "noLeak") {
					left = append(left, g)
				}
			}
			return strings.Join(left, "\n\n")
		}
		for end := time.Now().Add(5 * time.Second); ours() != ""; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("goroutines are left:\n%s", ours())
				return
			}
		}
	})
}

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to it that %s", what)
		}
	}
}

// diary is an index that keeps a list of its calls, and passes them to a real one.
type diary struct {
	*kvindex.Index
	mu    sync.Mutex
	seqs  map[string][]uint64 // since the last reset
	reset map[string]int
	block chan struct{} // Apply waits for it, if it is not nil
}

func newDiary(t testing.TB) *diary {
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &diary{Index: x, seqs: make(map[string][]uint64), reset: make(map[string]int)}
}

func (d *diary) Apply(id string, seq uint64, b kvindex.Batch) error {
	d.mu.Lock()
	block := d.block
	d.mu.Unlock()
	if block != nil {
		<-block
	}
	err := d.Index.Apply(id, seq, b)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.seqs[id] = append(d.seqs[id], seq)
	}
	return err
}

func (d *diary) Reset(id string) {
	d.Index.Reset(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seqs[id] = nil
	d.reset[id]++
}

func (d *diary) resets(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reset[id]
}

func (d *diary) applied(id string) []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]uint64(nil), d.seqs[id]...)
}

// holds reports whether exactly the messages from first to last are applied.
func (d *diary) holds(id string, first, last uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if uint64(len(d.seqs[id])) != last-first+1 {
		return false
	}
	for i, s := range d.seqs[id] {
		if s != first+uint64(i) {
			return false
		}
	}
	return true
}

// start runs a Subscriber for the length of the test.
func start(t testing.TB, nw func(egress.Policy) (network, error), cfg Config) *Subscriber {
	t.Helper()
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff, cfg.MaxBackoff = 5*time.Millisecond, 50*time.Millisecond
	}
	if testing.Verbose() {
		began := time.Now()
		cfg.Trace.Transition = func(id string, from, to State, why string) {
			t.Logf("%v %s: %v -> %v: %s", time.Since(began).Round(time.Millisecond), id, from, to, why)
		}
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if nw != nil {
		s.network = nw
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run ended with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("Run does not end")
		}
	})
	return s
}

// batch is a message that stores one block of two tokens, as a map event.
func batch(n int) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0x93, 0xcb}, math.Float64bits(1e9+float64(n)))
	b = append(b, 0x91, 0x87)
	str := func(s string) { b = append(append(b, 0xa0|byte(len(s))), s...) }
	str("type")
	str("BlockStored")
	str("block_hashes")
	b = append(b, 0x91, 0xce)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	str("parent_block_hash")
	b = append(b, 0xc0)
	str("token_ids")
	b = append(b, 0x92, 0xce)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = append(b, 1)
	str("block_size")
	b = append(b, 2)
	str("medium")
	str("GPU")
	str("lora_name")
	return append(b, 0xc0, 0)
}

func publish(p publisher, from, to int) {
	for n := from; n <= to; n++ {
		p.Publish(batch(n))
	}
}

func target(p publisher) []Target { return []Target{{ID: "a", Replay: p.ReplayEndpoint()}} }

func is(s *Subscriber, id string, want State) func() bool {
	return func() bool { return s.State(id) == want }
}
