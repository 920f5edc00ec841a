package nats

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestDeadPeer: the address of a peer that its name no longer has is not tried any more, while the new one is.
func TestDeadPeer(t *testing.T) {
	old := must(net.Listen("tcp", "127.0.0.2:0"))
	_, port := must2(net.SplitHostPort(old.Addr().String()))
	fresh := must(net.Listen("tcp", "127.0.0.3:"+port))
	var tries [2]atomic.Int64
	var wg sync.WaitGroup
	for i, ln := range []net.Listener{old, fresh} { // each takes connections, and is no server
		defer ln.Close()
		wg.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				tries[i].Add(1)
				c.Close()
			}
		})
	}
	var moved atomic.Bool
	s := must(NewServer(ServerConfig{Cluster: freeAddr(t), Peers: []string{"gateways:" + port},
		Lookup: 5 * time.Millisecond,
		resolve: func(context.Context, string) ([]string, error) {
			if moved.Load() {
				return []string{"127.0.0.3"}, nil
			}
			return []string{"127.0.0.2"}, nil
		}}))
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	wg.Go(func() { _ = s.Run(ctx) })
	until(t, "the first address is tried again and again", func() bool { return tries[0].Load() >= 2 })
	moved.Store(true)
	until(t, "the new address is tried", func() bool { return tries[1].Load() >= 1 })
	before := tries[0].Load() + 1 // one may be on its way
	until(t, "the new address is tried again and again", func() bool { return tries[1].Load() >= 5 })
	if n := tries[0].Load(); n > before {
		t.Errorf("the old address was tried %d times more", n-before+1)
	}
	stop()
	old.Close()
	fresh.Close()
	wg.Wait()
}

// TestRoutes: one connection to each peer, not several, so that a large fleet has few.
func TestRoutes(t *testing.T) {
	_, servers := cluster(t, 4)
	for _, s := range servers {
		until(t, "there is one connection to each peer", func() bool { return s.Peers() == 3 && s.server.NumRoutes() == 3 })
	}
}
