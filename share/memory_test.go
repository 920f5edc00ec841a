package share_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/warmroute/router/share"
)

func ExampleNewMemory() {
	bus := share.NewMemory()
	got := make(chan string)
	stop, err := bus.Subscribe("fleet", func(data []byte) { got <- string(data) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	fmt.Println(bus.Publish("fleet", []byte("hello")), <-got)
	_, err = bus.Request(context.Background(), "nobody", nil)
	fmt.Println(errors.Is(err, share.ErrNoPeer))
	// Output:
	// <nil> hello
	// true
}

// A slow subscriber loses frames beyond its queue, keeps the order of the others, and disturbs nobody.
func TestMemorySlowSubscriber(t *testing.T) {
	bus := share.NewMemory()
	release := make(chan struct{})
	slow, quick := make(chan int, 4096), make(chan int, 4096)
	number := func(data []byte) int { return int(data[0]) | int(data[1])<<8 }
	stop, err := bus.Subscribe("s", func(data []byte) { <-release; slow <- number(data) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	stopQuick, err := bus.Subscribe("s", func(data []byte) { quick <- number(data) })
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	buf := make([]byte, 2)
	for i := range 1500 {
		buf[0], buf[1] = byte(i), byte(i>>8)
		if err := bus.Publish("s", buf); err != nil {
			if !errors.Is(err, share.ErrDropped) {
				t.Fatal(err)
			}
			lost++
		}
		if got := <-quick; got != i {
			t.Fatalf("the quick one got %d, want %d", got, i)
		}
	}
	close(release)
	for last, i := -1, 0; i < 1500-lost; i++ {
		got := <-slow
		if got <= last {
			t.Fatalf("the slow one got %d after %d", got, last)
		}
		last = got
	}
	if s := bus.State(); lost == 0 || s.Dropped != uint64(lost) || s.Sent != 1500 || !s.Connected {
		t.Errorf("%d were lost; state %+v", lost, s)
	}
	stopQuick()
	stopQuick()
	if err := bus.Publish("s", make([]byte, share.MaxFrame+1)); !errors.Is(err, share.ErrDropped) {
		t.Errorf("a frame that is too large: %v", err)
	}
}

func TestMemoryRequest(t *testing.T) {
	bus := share.NewMemory()
	ctx := context.Background()
	stop, err := bus.Serve("s", func(request []byte) []byte {
		switch string(request) {
		case "none":
			return nil
		case "large":
			return make([]byte, share.MaxFrame+1)
		}
		return append([]byte("to "), request...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bus.Request(ctx, "s", []byte("a")); err != nil || string(got) != "to a" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := bus.Request(ctx, "s", []byte("none")); !errors.Is(err, share.ErrNoPeer) {
		t.Errorf("no answer: %v", err)
	}
	if _, err := bus.Request(ctx, "s", []byte("large")); err == nil {
		t.Error("a reply that is too large is no error")
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := bus.Request(done, "s", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx is done: %v", err)
	}
	stop()
	stop()
	if _, err := bus.Request(ctx, "s", nil); !errors.Is(err, share.ErrNoPeer) {
		t.Errorf("after stop: %v", err)
	}
}
