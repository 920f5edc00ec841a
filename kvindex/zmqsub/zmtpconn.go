package zmqsub

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// A role is what a connection is for.
type role struct {
	socket string   // SUB or DEALER
	peers  []string // sockets that fit
}

var (
	subscriber = role{"SUB", []string{"PUB", "XPUB"}}
	asker      = role{"DEALER", []string{"ROUTER", "DEALER", "REP"}}
)

// wire is one connection. recv and close are called by one goroutine; interrupt
// may be called by any and makes recv fail.
type wire interface {
	recv() ([][]byte, error)
	send(frames ...[]byte) error
	interrupt()
	close()
}

// limits bound a connection.
type limits struct {
	message   int           // bytes
	queue     int           // messages, where the library keeps its own queue
	heartbeat time.Duration // between PINGs; 0: none are sent, and silence is no sign
	timeout   time.Duration // of silence after which the peer is taken for dead
	handshake time.Duration
}

// conn is a wire of our own.
type conn struct {
	c    net.Conn
	r    *bufio.Reader
	lim  limits
	stop chan struct{} // ends the heartbeat
	beat sync.WaitGroup
	once sync.Once

	wmu sync.Mutex
}

// newConn shakes hands on c, which it owns from now on.
func newConn(ctx context.Context, c net.Conn, as role, topics []string, lim limits) (*conn, error) {
	w := &conn{c: c, lim: lim, stop: make(chan struct{})}
	end := context.AfterFunc(ctx, w.interrupt)
	defer end()
	if err := w.shake(as, topics); err != nil {
		w.close()
		return nil, err
	}
	if !end() {
		w.close()
		return nil, ctx.Err()
	}
	if lim.heartbeat > 0 {
		w.beat.Go(w.ping)
	}
	return w, nil
}

func (w *conn) shake(as role, topics []string) error {
	_ = w.c.SetDeadline(time.Now().Add(w.lim.handshake))
	if _, err := w.c.Write(greeting()); err != nil {
		return err
	}
	if err := readGreeting(w.c); err != nil {
		return err
	}
	if _, err := w.c.Write(appendReady(nil, as.socket)); err != nil {
		return err
	}
	from := &patient{c: w.c}
	w.r = bufio.NewReaderSize(from, 64<<10)
	flags, body, err := readFrame(w.r, maxCommand)
	if err != nil {
		return cut(err)
	}
	if flags&flagCommand == 0 || len(body) == 0 || len(body) < 1+int(body[0]) {
		return errors.New("zmtp: a message before the handshake has ended")
	}
	name, data := string(body[1:1+int(body[0])]), body[1+int(body[0]):]
	switch name {
	case "READY":
	case "ERROR":
		return fmt.Errorf("zmtp: the peer refuses: %q", data[min(1, len(data)):])
	default:
		return fmt.Errorf("zmtp: %q in the place of READY", name)
	}
	peer, err := property(data, "Socket-Type")
	if err != nil {
		return err
	}
	if !slices.Contains(as.peers, peer) {
		return fmt.Errorf("zmtp: the peer is a %q socket, none that a %s can talk to", peer, as.socket)
	}
	var b []byte
	for _, t := range topics {
		b = appendFrame(b, 0, append([]byte{1}, t...))
	}
	if len(b) > 0 {
		if _, err := w.c.Write(b); err != nil {
			return err
		}
	}
	_ = w.c.SetDeadline(time.Time{})
	from.timeout = w.lim.timeout
	return nil
}

// patient reads, and gives up where nothing at all comes for long. During the
// handshake a deadline for the whole of it stands instead.
type patient struct {
	c       net.Conn
	timeout time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if p.timeout > 0 {
		_ = p.c.SetReadDeadline(time.Now().Add(p.timeout))
	}
	return p.c.Read(b)
}

func (w *conn) recv() ([][]byte, error) {
	return readMessage(w.r, w.lim.message, w.command)
}

// command answers heartbeats. Whatever else a peer may tell is passed over.
func (w *conn) command(name string, data []byte) error {
	switch name {
	case "PING":
		if len(data) < 2 {
			return errors.New("zmtp: a PING without its time to live")
		}
		context := data[2:min(len(data), 2+16)]
		return w.write(appendCommand(nil, "PONG", context))
	case "ERROR":
		return fmt.Errorf("zmtp: the peer reports: %q", data[min(1, len(data)):])
	}
	return nil
}

func (w *conn) send(frames ...[]byte) error { return w.write(appendMessage(nil, frames...)) }

func (w *conn) write(b []byte) error {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	_ = w.c.SetWriteDeadline(time.Now().Add(w.lim.handshake))
	_, err := w.c.Write(b)
	return err
}

// ping shows the peer that we are here, and makes it show that it is.
func (w *conn) ping() {
	t := time.NewTicker(w.lim.heartbeat)
	defer t.Stop()
	ttl := min(w.lim.timeout/(100*time.Millisecond), 1<<16-1)
	ping := appendCommand(nil, "PING", binary.BigEndian.AppendUint16(nil, uint16(ttl)))
	for {
		select {
		case <-w.stop:
			return
		case <-t.C:
			if w.write(ping) != nil {
				w.interrupt()
				return
			}
		}
	}
}

func (w *conn) interrupt() { _ = w.c.Close() }

func (w *conn) close() {
	w.once.Do(func() { close(w.stop) })
	w.interrupt()
	w.beat.Wait()
}
