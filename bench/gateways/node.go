package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/strategy/leastwork"
)

// nodeArg makes the command a node: it reads a job, says that it is ready, begins at the next line, and writes a
// result.
const nodeArg = "-node"

// job is what a node is to do.
type job struct {
	Bus           busSpec
	Index, Nodes  int
	Frames        bool    // bare frames, not requests
	Rate          float64 // a second, of this node
	Warm, Measure time.Duration
	Epoch         int64 // Unix time in microseconds, about when it began
	FrameSize     int
	Prefix        int // bytes of a prompt that others have too
	Unique        int
}

// result is what it did, after Warm.
type result struct {
	Done        int           // frames or requests
	Behind      time.Duration // most that it was late in doing them
	Frames      []uint32      // how long frames took to it, in microseconds
	Facts       []uint32      // how long changes of load took to be in its view
	CPU         time.Duration
	Sent, Bytes uint64 // on the bus
	Dropped     uint64
	Lost        uint64
	P50, P99    time.Duration // share.State's, of its own frames
}

const (
	replicas  = 8
	probe     = "probe-"
	frameHead = 9 // sender and time
)

// serveNode is a node.
func serveNode(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return err
	}
	bus, closeBus, err := j.Bus.open()
	if err != nil {
		return err
	}
	defer closeBus()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	n := &node{job: &j, in: lines, out: out, random: rand.New(rand.NewPCG(uint64(j.Epoch), uint64(j.Index)))}
	work := n.requests
	if j.Frames {
		work = n.frames
	}
	r, err := work(ctx, bus)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

type node struct {
	job    *job
	in     *bufio.Reader
	out    io.Writer
	random *rand.Rand

	measuring    atomic.Bool
	frame, facts samples
}

// ready says so, and waits for the word to begin.
func (n *node) ready() error {
	if _, err := fmt.Fprintln(n.out, "ready"); err != nil {
		return err
	}
	_, err := n.in.ReadString('\n')
	return err
}

// pace calls do at the moments of a Poisson process, first for Warm, then for Measure.
func (n *node) pace(do func()) (done int, behind, cpu time.Duration, err error) {
	start := time.Now()
	var at, before time.Duration
	for end := n.job.Warm + n.job.Measure; ; {
		at += time.Duration(n.random.ExpFloat64() / n.job.Rate * 1e9)
		if !n.measuring.Load() && at >= n.job.Warm {
			if before, err = loadgen.CPU(os.Getpid()); err != nil {
				return 0, 0, 0, err
			}
			n.measuring.Store(true)
		}
		if at >= end {
			break
		}
		if wait := at - time.Since(start); wait > 0 {
			time.Sleep(wait)
		}
		if do(); n.measuring.Load() {
			done++
			behind = max(behind, time.Since(start)-at)
		}
	}
	n.measuring.Store(false)
	after, err := loadgen.CPU(os.Getpid())
	return done, behind, after - before, err
}

func (n *node) micros() int64 { return time.Now().UnixMicro() - n.job.Epoch }

// within waits until done, and fails after a minute.
func within(what string, done func() bool) error {
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New(what + " has not come about within a minute")
		}
	}
	return nil
}

// frames publishes bare frames, and hears those of all nodes.
func (n *node) frames(_ context.Context, bus share.Bus) (*result, error) {
	heard := make([]atomic.Bool, n.job.Nodes)
	stop, err := bus.Subscribe("frames", func(b []byte) {
		if len(b) < frameHead || int(b[0]) >= len(heard) {
			return
		}
		heard[b[0]].Store(true)
		if n.measuring.Load() {
			n.frame.add(n.micros() - int64(binary.BigEndian.Uint64(b[1:])))
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	data := make([]byte, n.job.FrameSize)
	data[0] = byte(n.job.Index)
	publish := func() {
		binary.BigEndian.PutUint64(data[1:], uint64(n.micros()))
		_ = bus.Publish("frames", data) // a dropped one is counted
	}
	err = within("hearing all others", func() bool {
		publish()
		for i := range heard {
			if !heard[i].Load() {
				return false
			}
		}
		return true
	})
	if err == nil {
		err = n.ready()
	}
	if err != nil {
		return nil, err
	}
	before := bus.State()
	r := &result{}
	if r.Done, r.Behind, r.CPU, err = n.pace(publish); err != nil {
		return nil, err
	}
	after := bus.State()
	r.Frames, r.Sent, r.Dropped = n.frame.all(), after.Sent-before.Sent, after.Dropped-before.Dropped
	return r, nil
}

// stamped is a bus with the time of publication in each frame.
type stamped struct {
	share.Bus
	n *node
}

func (s stamped) Publish(subject string, data []byte) error {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(data)), uint64(s.n.micros()))
	return s.Bus.Publish(subject, append(b, data...))
}

func (s stamped) Subscribe(subject string, receive func([]byte)) (func(), error) {
	return s.Bus.Subscribe(subject, func(b []byte) {
		if len(b) < 8 {
			return
		}
		if s.n.measuring.Load() {
			s.n.frame.add(s.n.micros() - int64(binary.BigEndian.Uint64(b)))
		}
		receive(b[8:])
	})
}

// requests routes prompts, and shares what it does unless bus is nil.
func (n *node) requests(ctx context.Context, bus share.Bus) (*result, error) {
	var s *share.Share
	if bus != nil {
		var err error
		s, err = share.New(share.Config{Bus: stamped{bus, n}, Secret: "the secret of a benchmark",
			Name: fmt.Sprint("node-", n.job.Index)})
		if err != nil {
			return nil, err
		}
	}
	v, err := loadview.New(loadview.Config{Share: s})
	if err != nil {
		return nil, err
	}
	var members []loadview.Member
	for i := range replicas {
		members = append(members, loadview.Member{ID: fmt.Sprint("http://replica-", i, ":8000")})
	}
	if err := v.Set(members); err != nil {
		return nil, err
	}
	w, err := leastwork.New(leastwork.Config{Share: s})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if s != nil {
		failed := make(chan error, 1)
		wg.Go(func() { failed <- s.Run(ctx) })
		err := within("peers", func() bool { return len(failed) > 0 || len(s.State().Peers) == n.job.Nodes-1 })
		if len(failed) > 0 {
			err = <-failed
		}
		if err != nil {
			return nil, err
		}
		defer n.probe(ctx, &wg, peering.Of(s))()
	}
	texts := n.texts()
	if err := n.ready(); err != nil {
		return nil, err
	}
	var before share.State
	if s != nil {
		before = s.State()
	}
	r := &result{}
	rt := router.New(w, v, router.Options{})
	reply := strings.Repeat("an answer in so many words ", 40)
	if r.Done, r.Behind, r.CPU, err = n.pace(func() {
		l, err := rt.Route(ctx, router.Prompt{Model: "bench", Text: texts()})
		if err != nil {
			return // it is done: there are no bounds, and the members are fine
		}
		time.AfterFunc(40*time.Millisecond, l.FirstToken)
		time.AfterFunc(200*time.Millisecond, func() {
			l.Done(router.Outcome{Stage: router.Finished, Status: 200, Reply: reply})
		})
	}); err != nil {
		return nil, err
	}
	r.Frames, r.Facts = n.frame.all(), n.facts.all()
	if s != nil {
		after := s.State()
		r.Sent, r.Bytes = after.Sent-before.Sent, after.BytesSent-before.BytesSent
		r.Dropped = after.Bus.Dropped - before.Bus.Dropped + after.Dropped - before.Dropped + after.Failed - before.Failed
		r.Lost, r.P50, r.P99 = after.Lost-before.Lost, after.LagP50, after.LagP99
	}
	time.Sleep(250 * time.Millisecond) // the last are done
	return r, nil
}

// probe publishes a load that is the time, on a target of this node alone, and hears those of the others: how long it
// takes from a change until another gateway's view has it.
func (n *node) probe(ctx context.Context, wg *sync.WaitGroup, s peering.Node) (stop func()) {
	mine := s.Local(fmt.Sprint(probe, n.job.Index))
	random := rand.New(rand.NewPCG(uint64(n.job.Index), 2))
	wg.Go(func() {
		for ctx.Err() == nil {
			mine.Set(1, 0, n.micros())
			time.Sleep(time.Duration(random.ExpFloat64() * float64(200*time.Millisecond)))
		}
	})
	var mu sync.Mutex
	last := map[string]int64{}
	sums := map[string]peering.Sum{}
	for i := range n.job.Nodes {
		if i != n.job.Index {
			id := fmt.Sprint(probe, i)
			sums[id] = s.Sum(id)
		}
	}
	return s.Watch(func(ids []string) {
		for _, id := range ids {
			sum := sums[id]
			if sum == nil {
				continue
			}
			at := sum.Load().Context
			mu.Lock()
			news := at > last[id]
			last[id] = max(at, last[id])
			mu.Unlock()
			if news && n.measuring.Load() {
				n.facts.add(n.micros() - at)
			}
		}
	})
}

// texts returns a source of prompts: each begins as many others do, at all nodes, and ends as no other.
func (n *node) texts() func() string {
	w := workload.Chat(workload.ChatConfig{Conversations: 200})
	var all []string
	for i := range w.Conversations {
		var b strings.Builder
		for _, m := range w.Messages(w.Last(i)) {
			b.WriteString(m.Content)
		}
		all = append(all, b.String()[:min(b.Len(), n.job.Prefix)])
	}
	tail := strings.Repeat("what was said last ", n.job.Unique/19+1)[:n.job.Unique]
	count := 0
	return func() string {
		count++
		return all[n.random.IntN(len(all))] + fmt.Sprintf("%016x", uint64(n.job.Index)<<32|uint64(count)) + tail[16:]
	}
}
