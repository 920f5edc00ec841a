package main

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/vllmtest"
)

// TestClosesAfterTheLastByte: a client that closes its connection as soon as it has all of the reply has
// finished, and is not counted as one that went away.
func TestClosesAfterTheLastByte(t *testing.T) {
	s, err := vllmtest.New(vllmtest.Config{Model: "m", TimeScale: 1e-6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	g := newRig(t, rigConfig{Config: Config{Log: discard}}, s.URL)
	host := strings.TrimPrefix(g.url, "http://")
	const clients, each = 8, 25
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			body := chatBody
			if i%2 == 0 {
				body = streamBody
			}
			for range each {
				c, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", host)
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, "POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nContent-Type: application/json\r\n"+
					"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
				got, err := io.ReadAll(c)
				c.Close()
				if err != nil || !strings.Contains(string(got), "200 OK") {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	g.settled(t)
	for _, o := range g.ended() {
		if o.Stage != router.Finished {
			t.Errorf("ended as %+v", o)
		}
	}
	if n := len(g.ended()); n != clients*each {
		t.Errorf("%d ended", n)
	}
}
