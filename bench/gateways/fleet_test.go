package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadView(t *testing.T) {
	v, err := readView(strings.NewReader(`# HELP warmroute_share_connected 1 if the bus is connected.
warmroute_share_connected{share="a b"} 1
warmroute_share_joined{share=""} 1
warmroute_share_load_shared 0
warmroute_share_peers_counted 7
warmroute_share_lag_seconds{percentile="50",share=""} 0.0005
warmroute_share_lag_seconds{percentile="99",share=""} 0.002
warmroute_share_marks 12
warmroute_share_frames_total{direction="received",share=""} 9
warmroute_share_frames_total{direction="sent",share=""} 3
warmroute_share_bytes_total{direction="sent",share=""} 1e+06
warmroute_share_losses_total{cause="bus",share=""} 2
other_total 5
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &view{connected: true, joined: true, counted: 7, p50: 500 * time.Microsecond, p99: 2 * time.Millisecond,
		marks: 12, sent: 3, bytes: 1e6, losses: map[string]float64{"bus": 2}}
	if d := cmp.Diff(want, v, cmp.AllowUnexported(view{})); d != "" {
		t.Error(d)
	}
	if _, err := readView(strings.NewReader("other_total 5\n")); err == nil {
		t.Error("a gateway that does not share is taken for one that does")
	}
}

// TestLink: a wire carries both ways, stands still and goes on, and is cut and mended.
func TestLink(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // it answers what it hears
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	l, err := newLink(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	echo := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	c := dial()
	defer c.Close()
	if err := echo(c); err != nil {
		t.Fatal(err)
	}
	l.set(state{standing: true})
	answered := make(chan error, 1)
	go func() { answered <- echo(c) }()
	select {
	case err := <-answered:
		t.Fatalf("it answers over a wire that stands still: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	l.set(state{})
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	l.set(state{delay: 30 * time.Millisecond})
	start := time.Now()
	if err := echo(c); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 60*time.Millisecond {
		t.Errorf("there and back over a slow wire took %v", took)
	}
	l.set(state{cut: true})
	if err := echo(c); err == nil {
		t.Error("it answers over a wire that is cut")
	}
	b := dial()
	defer b.Close()
	if err := echo(b); err == nil {
		t.Error("a new connection passes a wire that is cut")
	}
	l.set(state{})
	d := dial()
	defer d.Close()
	if err := echo(d); err != nil {
		t.Fatal(err)
	}
}

func TestBetween(t *testing.T) {
	c := &clients{done: []served{
		{at: 1, first: 10 * time.Millisecond, prompt: 100, cached: 50},
		{at: 2, first: 30 * time.Millisecond, prompt: 300, cached: 100, again: 2},
		{at: 3, err: io.EOF, again: 4},
		{at: 4, first: time.Hour, prompt: 1},
	}}
	got := c.between(1, 4)
	want := summary{requests: 3, again: 6, lost: 1, mean: 20 * time.Millisecond, p99: 30 * time.Millisecond, cached: 0.375,
		err: io.EOF}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
