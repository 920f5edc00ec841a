package zmqsub

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/zmtp"
)

// flood serves a PUB that sends messages of one size as fast as they are taken.
func flood(b *testing.B, size int) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	var many []byte
	for len(many) < 256<<10 {
		many = zmtp.AppendMessage(many, []byte("kv@a@m"), binary.BigEndian.AppendUint64(nil, 7), make([]byte, size))
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				z, err := zmtp.New(context.Background(), c, zmtp.Config{Socket: "PUB", Minor: 1, MaxMessage: 1 << 10,
					Handshake: 5 * time.Second})
				if err != nil {
					return
				}
				go func() { // PINGs
					for {
						if _, err := z.Recv(); err != nil {
							return
						}
					}
				}()
				for {
					if _, err := c.Write(many); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// BenchmarkReader is the rate at which a connection's messages come in, before
// they are decoded. With the tag libzmq it has libzmq's next to our own.
//
//	go test -tags libzmq -run '^$' -bench Reader ./kvindex/zmqsub
func BenchmarkReader(b *testing.B) {
	for _, size := range []int{300, 3_000, 100_000} {
		for name, open := range networks {
			b.Run(fmt.Sprintf("bytes=%d/%s", size, name), func(b *testing.B) {
				nw, err := open(egress.Policy{})
				if err != nil {
					b.Fatal(err)
				}
				defer nw.close()
				lim := limits{message: 1 << 20, queue: 8192, handshake: 5 * time.Second}
				w, err := nw.dial(b.Context(), subscriber, flood(b, size), []string{""}, lim)
				if err != nil {
					b.Fatal(err)
				}
				defer w.close()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := w.recv(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}
