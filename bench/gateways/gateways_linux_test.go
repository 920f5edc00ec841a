package main

import (
	"context"
	"testing"
	"time"
)

// TestNodes: processes on a bus within them hear each other's frames and see each other's load. A busy machine may not
// let one of them hear anything in so short a time, and gets another.
func TestNodes(t *testing.T) {
	o := &options{nodes: 3, warm: 100 * time.Millisecond, measure: 500 * time.Millisecond, out: t.Output()}
	for _, frames := range []bool{true, false} {
		for end := time.Now().Add(2 * time.Minute); ; {
			rs, _, err := o.runNodes(t.Context(), embedded, job{Frames: frames, Rate: 300, FrameSize: 160, Prefix: 4096,
				Unique: 2048})
			if err != nil {
				t.Fatal(err)
			}
			heard := true
			for i, r := range rs {
				t.Logf("node %d did %d, heard %d frames and saw %d changes", i, r.Done, len(r.Frames), len(r.Facts))
				heard = heard && r.Done > 0 && len(r.Frames) > 0 && (frames || len(r.Facts) > 0)
			}
			if heard {
				break
			}
			if time.Now().After(end) {
				t.Fatal("not all nodes hear the others")
			}
		}
	}
}

// TestFleet: two gateways that share, of which one is killed, starts again, and is cut off from the other for a while.
// No request is lost, and the views come together again.
func TestFleet(t *testing.T) {
	o := &options{rate: 150, scale: 0.02, think: 20 * time.Millisecond, tokens: 4, systems: 4, prefix: 4096, unique: 1024,
		seed: 1, out: t.Output()}
	t.Cleanup(o.started.remove)
	ctx := t.Context()
	f, err := o.newFleet(ctx, embedded, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	c := newClients(f.urls(), o)
	defer c.http.CloseIdleConnections()
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(running)
	}()
	defer func() { stop(); <-ended }()
	// some waits until so many conversations more have ended.
	some := func(n int) {
		t.Helper()
		until(t, "conversations end", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.last) >= n || len(c.done) > 0 && c.done[len(c.done)-1].err != nil
		})
	}
	some(3)
	f.gateways[0].kill()
	some(6)
	if err := f.gateways[0].start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := f.together(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.part(1, state{cut: true})
	until(t, "they do not count each other", func() bool {
		v, err := f.gateways[0].view(ctx)
		return err == nil && v.counted == 0
	})
	some(12)
	f.part(0, state{})
	if _, err := f.together(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	stop()
	<-ended
	if s := c.between(0, time.Hour); s.lost > 0 || s.requests == 0 {
		t.Errorf("%d of %d requests were lost: %v", s.lost, s.requests, s.err)
	}
	until(t, "the views are alike", func() bool {
		same, worst, err := f.alike(ctx, c.sample(12))
		if err != nil {
			t.Fatal(err)
		}
		if same < 1 {
			t.Logf("%.3f of the beliefs are alike, and two differ by %d bytes", same, worst)
		}
		return same == 1
	})
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": it has not come about")
		}
	}
}
