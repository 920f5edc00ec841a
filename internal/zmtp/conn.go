package zmtp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a Conn.
type Config struct {
	Socket string   // the type of our socket, such as "SUB"
	Peers  []string // types of sockets that fit; nil: any
	Minor  byte     // version 3.Minor is announced

	MaxMessage int           // bytes of a message that is read
	Handshake  time.Duration // bounds the whole handshake
	Write      time.Duration // bounds one write; 0: no bound
	Heartbeat  time.Duration // between the PINGs that are sent; 0: none
	Silence    time.Duration // after which a peer is taken for dead; 0: never
	Message    time.Duration // bounds one message, from its first byte to its last; 0: no bound

	// Command is called by Recv for commands other than PING, PONG and ERROR. nil:
	// they are ignored.
	Command func(name string, data []byte)
	// Grow is called by Recv before more than 64 KiB of a message are kept, with
	// the number of further bytes; its error ends the connection. nil: it is not.
	Grow func(n int) error
}

// Conn is a connection after its handshake. Recv and Close are called by one
// goroutine; the other methods may be called by any.
type Conn struct {
	c    net.Conn
	cfg  Config
	from *deadlines
	r    reader
	stop chan struct{} // ends the heartbeat
	beat sync.WaitGroup
	once sync.Once

	wmu sync.Mutex
}

// New performs the handshake on c, which it owns from now on: c is closed if the
// handshake fails, or if ctx ends before it is done.
func New(ctx context.Context, c net.Conn, cfg Config) (*Conn, error) {
	w := &Conn{c: c, cfg: cfg, stop: make(chan struct{}), from: &deadlines{c: c}}
	w.r = reader{r: bufio.NewReaderSize(w.from, 64<<10), limit: cfg.MaxMessage, command: w.command, grow: cfg.Grow}
	end := context.AfterFunc(ctx, w.Interrupt)
	defer end()
	if err := w.handshake(); err != nil {
		w.Close()
		return nil, err
	}
	if !end() {
		w.Close()
		return nil, ctx.Err()
	}
	if cfg.Heartbeat > 0 {
		w.beat.Go(w.ping)
	}
	return w, nil
}

func (w *Conn) handshake() error {
	_ = w.c.SetDeadline(time.Now().Add(w.cfg.Handshake))
	if _, err := w.c.Write(Greeting(w.cfg.Minor)); err != nil {
		return err
	}
	if err := ReadGreeting(w.r.r); err != nil {
		return err
	}
	if _, err := w.c.Write(AppendReady(nil, w.cfg.Socket)); err != nil {
		return err
	}
	flags, body, err := w.r.frame(maxCommand, 0)
	if err != nil {
		return unexpected(err)
	}
	if flags&Command == 0 {
		return errors.New("zmtp: a message before the handshake has ended")
	}
	name, data, err := splitCommand(body)
	if err != nil {
		return err
	}
	switch name {
	case "READY":
	case "ERROR":
		return errors.New("zmtp: the peer refuses the connection")
	default:
		return errors.New("zmtp: another command in the place of READY")
	}
	peer, err := property(data, "Socket-Type")
	if err != nil {
		return err
	}
	if w.cfg.Peers != nil && !slices.Contains(w.cfg.Peers, peer) {
		return fmt.Errorf("zmtp: the peer is a %q socket, none that a %s can talk to",
			known(peer, "PUB", "SUB", "XPUB", "XSUB", "ROUTER", "DEALER", "REQ", "REP", "PUSH", "PULL", "PAIR"), w.cfg.Socket)
	}
	_ = w.c.SetDeadline(time.Time{})
	w.from.silence = w.cfg.Silence
	return nil
}

// Recv receives a message. It answers heartbeats.
func (w *Conn) Recv() ([][]byte, error) {
	if w.cfg.Message <= 0 {
		return w.r.message(nil)
	}
	return w.r.message(func(within bool) {
		w.from.end = time.Time{}
		if within {
			w.from.end = time.Now().Add(w.cfg.Message)
		}
	})
}

// command answers heartbeats.
func (w *Conn) command(name string, data []byte) error {
	switch name {
	case "PING":
		if len(data) < 2 {
			return errors.New("zmtp: a PING without its time to live")
		}
		context := data[2:min(len(data), 2+16)]
		return w.write(AppendCommand(nil, "PONG", context))
	case "PONG":
	case "ERROR":
		return errors.New("zmtp: the peer reports an error")
	default:
		if w.cfg.Command != nil {
			w.cfg.Command(name, data)
		}
	}
	return nil
}

// Send sends a message.
func (w *Conn) Send(frames ...[]byte) error { return w.write(AppendMessage(nil, frames...)) }

// Subscribe subscribes to topics, in the way of version 3.0.
func (w *Conn) Subscribe(topics ...string) error {
	var b []byte
	for _, t := range topics {
		b = AppendFrame(b, 0, append([]byte{1}, t...))
	}
	return w.write(b)
}

func (w *Conn) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	w.wmu.Lock()
	defer w.wmu.Unlock()
	if w.cfg.Write > 0 {
		_ = w.c.SetWriteDeadline(time.Now().Add(w.cfg.Write))
	}
	_, err := w.c.Write(b)
	return err
}

// ping shows the peer that this side is alive, and makes it answer.
func (w *Conn) ping() {
	t := time.NewTicker(w.cfg.Heartbeat)
	defer t.Stop()
	ttl := min(w.cfg.Silence/(100*time.Millisecond), 1<<16-1)
	ping := AppendCommand(nil, "PING", binary.BigEndian.AppendUint16(nil, uint16(ttl)))
	for {
		select {
		case <-w.stop:
			return
		case <-t.C:
			if w.write(ping) != nil {
				w.Interrupt()
				return
			}
		}
	}
}

// Quiet returns how long ago bytes of the peer came last.
func (w *Conn) Quiet() time.Duration {
	return time.Duration(time.Now().UnixNano() - w.from.last.Load())
}

// Interrupt closes the connection, so that Recv fails.
func (w *Conn) Interrupt() { _ = w.c.Close() }

// Close closes the connection and waits for its goroutine.
func (w *Conn) Close() {
	w.once.Do(func() { close(w.stop) })
	w.Interrupt()
	w.beat.Wait()
}

// deadlines reads, and fails if nothing comes for silence, or after end. During
// the handshake both are zero, and the deadline of the whole handshake applies.
type deadlines struct {
	c       net.Conn
	silence time.Duration
	end     time.Time
	set     bool // a deadline is set
	last    atomic.Int64
}

func (d *deadlines) Read(b []byte) (int, error) {
	at := d.end
	if d.silence > 0 {
		if s := time.Now().Add(d.silence); at.IsZero() || s.Before(at) {
			at = s
		}
	}
	if !at.IsZero() || d.set {
		_ = d.c.SetReadDeadline(at)
		d.set = !at.IsZero()
	}
	n, err := d.c.Read(b)
	if n > 0 {
		d.last.Store(time.Now().UnixNano())
	}
	return n, err
}
