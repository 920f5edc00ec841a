package zmqsub

import (
	"context"
	"net"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/zmtp"
)

// network opens connections. The build decides which.
type network interface {
	dial(ctx context.Context, as role, address string, topics []string, lim limits) (wire, error)
	close()
}

// wire is one connection. recv and close are called by one goroutine; interrupt
// may be called by any and makes recv fail.
type wire interface {
	recv() ([][]byte, error)
	send(frames ...[]byte) error
	interrupt()
	close()
}

// A role is the part of a connection's socket.
type role struct {
	socket string   // SUB or DEALER
	peers  []string // sockets that fit
}

var (
	subscriber = role{"SUB", []string{"PUB", "XPUB"}}
	asker      = role{"DEALER", []string{"ROUTER", "DEALER", "REP"}}
)

// limits bound a connection.
type limits struct {
	message   int           // bytes
	queue     int           // messages, for a library that keeps its own queue
	heartbeat time.Duration // between PINGs; 0: none are sent, and silence is no sign
	timeout   time.Duration // of silence after which the peer is taken for dead
	handshake time.Duration
	whole     time.Duration   // from a message's first byte to its last
	grow      func(int) error // as zmtp.Config.Grow
}

// plain is the network of our own connections.
type plain struct{ d *egress.Dialer }

func (p plain) dial(ctx context.Context, as role, address string, topics []string, lim limits) (wire, error) {
	c, err := p.d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newConn(ctx, c, as, topics, lim)
}

func (plain) close() {}

// conn is a wire of our own.
type conn struct{ *zmtp.Conn }

// newConn shakes hands on c, which it owns from now on, and subscribes to topics.
func newConn(ctx context.Context, c net.Conn, as role, topics []string, lim limits) (*conn, error) {
	z, err := zmtp.New(ctx, c, zmtp.Config{
		Socket: as.socket, Peers: as.peers, MaxMessage: lim.message,
		Handshake: lim.handshake, Write: lim.handshake, Heartbeat: lim.heartbeat, Silence: lim.timeout,
		Message: lim.whole, Grow: lim.grow,
	})
	if err != nil {
		return nil, err
	}
	if err := z.Subscribe(topics...); err != nil {
		z.Close()
		return nil, err
	}
	return &conn{z}, nil
}

func (w *conn) recv() ([][]byte, error)     { return w.Recv() }
func (w *conn) send(frames ...[]byte) error { return w.Send(frames...) }
func (w *conn) interrupt()                  { w.Interrupt() }
func (w *conn) close()                      { w.Close() }
