package nats

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmroute/router/share"
	"github.com/warmroute/router/share/bustest"
)

// TestKit holds a Bus to the promises of share.Bus: gateways with one server, and each with a server of its own in a
// cluster.
func TestKit(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		bustest.Run(t, bustest.Config{
			New: func(t testing.TB, n int) []share.Bus {
				s := must(NewServer(ServerConfig{}))
				t.Cleanup(s.Close)
				var all []share.Bus
				for range n {
					b := must(New(Config{Server: s}))
					t.Cleanup(b.Close)
					all = append(all, b)
				}
				return all
			},
			Outage: outage,
		})
	})
	t.Run("cluster", func(t *testing.T) {
		bustest.Run(t, bustest.Config{New: func(t testing.TB, n int) []share.Bus {
			buses, _ := cluster(t.(*testing.T), n)
			var all []share.Bus
			for _, b := range buses {
				all = append(all, b)
			}
			return all
		}})
	})
}

func outage(t testing.TB) (share.Bus, func(), func()) {
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	addr := ln.Addr().String()
	ln.Close()
	host, port := must2(net.SplitHostPort(addr))
	var s *server.Server
	up := func() {
		s = must(server.NewServer(&server.Options{Host: host, Port: must(strconv.Atoi(port)), NoSigs: true, NoLog: true}))
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Error("the server does not start")
		}
	}
	down := func() { s.Shutdown(); s.WaitForShutdown() }
	up()
	t.Cleanup(func() { down() })
	b := must(New(Config{URL: fmt.Sprint("nats://", addr)}))
	t.Cleanup(b.Close)
	return b, down, up
}
