//go:build libzmq

package zmqsub

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pebbe/zmq4"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/zmtp"
)

// libzmq is a network of libzmq's sockets, each of which connects once, to an
// address that has been dialled under the policy just before. libzmq would resolve
// the name again, and once more whenever it reconnects.
type libzmq struct {
	ctx  *zmq4.Context
	d    *egress.Dialer
	next atomic.Uint64
}

func newNetwork(p egress.Policy) (network, error) {
	ctx, err := zmq4.NewContext()
	if err != nil {
		return nil, fmt.Errorf("zmqsub: libzmq: %w", err)
	}
	return &libzmq{ctx: ctx, d: p.Dialer()}, nil
}

// close waits for the sockets, which are closed by then and linger for nothing.
func (n *libzmq) close() { _ = n.ctx.Term() }

// zwire is a libzmq socket and its monitor. A socket belongs to one goroutine, so
// interrupt only leaves word.
type zwire struct {
	sock, mon *zmq4.Socket
	poller    *zmq4.Poller
	stop      atomic.Bool
	gone      string // why the peer is gone, once the monitor has reported it
	maxBytes  int
}

// attention is how soon an interrupt is noticed.
const attention = 20 * time.Millisecond

func (n *libzmq) dial(ctx context.Context, as role, address string, topics []string, lim limits) (wire, error) {
	c, err := n.d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	dialled := c.RemoteAddr().String()
	_ = c.Close()

	w := &zwire{maxBytes: lim.message}
	kind := zmq4.SUB
	if as.socket == "DEALER" {
		kind = zmq4.DEALER
	}
	if w.sock, err = n.ctx.NewSocket(kind); err != nil {
		return nil, err
	}
	if err := w.open(n, dialled, topics, lim, kind); err != nil {
		w.close()
		return nil, err
	}
	if err := w.greet(ctx, as); err != nil {
		w.close()
		return nil, fmt.Errorf("zmqsub: libzmq: %s: %w", address, err)
	}
	return w, nil
}

func (w *zwire) open(n *libzmq, address string, topics []string, lim limits, kind zmq4.Type) error {
	errs := []error{
		w.sock.SetLinger(0),
		w.sock.SetReconnectIvl(-1),
		w.sock.SetMaxmsgsize(int64(lim.message)),
		w.sock.SetHandshakeIvl(lim.handshake),
		w.sock.SetIpv6(true),
		w.sock.SetImmediate(true),
		w.sock.SetRcvhwm(lim.queue),
	}
	if lim.heartbeat > 0 {
		errs = append(errs, w.sock.SetHeartbeatIvl(lim.heartbeat), w.sock.SetHeartbeatTimeout(lim.timeout),
			w.sock.SetHeartbeatTtl(lim.timeout))
	}
	for _, t := range topics {
		errs = append(errs, w.sock.SetSubscribe(t))
	}
	name := fmt.Sprintf("inproc://monitor-%d", n.next.Add(1))
	const events = zmq4.EVENT_HANDSHAKE_SUCCEEDED | zmq4.EVENT_HANDSHAKE_FAILED_NO_DETAIL |
		zmq4.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq4.EVENT_HANDSHAKE_FAILED_AUTH |
		zmq4.EVENT_DISCONNECTED | zmq4.EVENT_CLOSED
	errs = append(errs, w.sock.Monitor(name, events))
	var err error
	if w.mon, err = n.ctx.NewSocket(zmq4.PAIR); err != nil {
		return err
	}
	errs = append(errs, w.mon.SetLinger(0), w.mon.Connect(name))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.poller = zmq4.NewPoller()
	w.poller.Add(w.sock, zmq4.POLLIN)
	w.poller.Add(w.mon, zmq4.POLLIN)
	return w.sock.Connect("tcp://" + address)
}

// greet waits for the handshake.
func (w *zwire) greet(ctx context.Context, as role) error {
	p := zmq4.NewPoller()
	p.Add(w.mon, zmq4.POLLIN)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ready, err := p.Poll(attention); err != nil && !again(err) {
			return err
		} else if len(ready) == 0 {
			continue
		}
		ev, _, _, err := w.mon.RecvEvent(zmq4.DONTWAIT)
		if err != nil {
			if again(err) {
				continue
			}
			return err
		}
		if ev == zmq4.EVENT_HANDSHAKE_SUCCEEDED {
			return nil
		}
		return fmt.Errorf("no handshake with a peer that fits a %s: %v", as.socket, ev)
	}
}

func again(err error) bool {
	e := zmq4.AsErrno(err)
	return e == zmq4.Errno(syscall.EAGAIN) || e == zmq4.Errno(syscall.EINTR)
}

var errInterrupted = errors.New("zmqsub: interrupted")

func (w *zwire) recv() ([][]byte, error) {
	for {
		if w.stop.Load() {
			return nil, errInterrupted
		}
		msg, err := w.take()
		if err == nil || !again(err) {
			return msg, err
		}
		if w.gone != "" { // and all that it had sent has been received
			return nil, errors.New(w.gone)
		}
		ready, err := w.poller.Poll(attention)
		if err != nil && !again(err) {
			return nil, err
		}
		for _, p := range ready {
			if p.Socket == w.mon {
				if ev, _, _, err := w.mon.RecvEvent(zmq4.DONTWAIT); err == nil && ev != zmq4.EVENT_HANDSHAKE_SUCCEEDED {
					w.gone = fmt.Sprintf("the connection is lost: %v", ev)
				}
			}
		}
	}
}

// take receives a message if there is one.
func (w *zwire) take() ([][]byte, error) {
	var msg [][]byte
	left := w.maxBytes
	for {
		b, err := w.sock.RecvBytes(zmq4.DONTWAIT)
		if err != nil {
			return nil, err
		}
		if left -= len(b); left < 0 || len(msg) == zmtp.MaxFrames {
			return nil, zmtp.ErrTooLong
		}
		msg = append(msg, b)
		more, err := w.sock.GetRcvmore()
		if err != nil {
			return nil, err
		}
		if !more {
			return msg, nil
		}
	}
}

func (w *zwire) send(frames ...[]byte) error {
	_, err := w.sock.SendMessageDontwait(frames)
	return err
}

func (w *zwire) interrupt() { w.stop.Store(true) }

// close takes the monitor off first. libzmq's own threads, and its context with
// them, wait for ever if they have an event to report and the monitor is not read
// any more; after this call they report none.
func (w *zwire) close() {
	if w.mon != nil {
		_ = w.sock.Monitor("", 0)
		_ = w.mon.Close()
	}
	_ = w.sock.Close()
}
