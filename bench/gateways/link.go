package main

import (
	"net"
	"slices"
	"sync"
	"time"
)

// link is a wire between a process and another: it carries connections to an address, and can be cut, stand still, or
// be slow.
type link struct {
	addr string // of this end
	to   string
	ln   net.Listener
	wg   sync.WaitGroup

	mu       sync.Mutex
	moves    *sync.Cond
	cut      bool
	standing bool
	delay    time.Duration
	closed   bool
	conns    map[net.Conn]struct{}
}

func newLink(to string) (*link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{addr: ln.Addr().String(), to: to, ln: ln, conns: map[net.Conn]struct{}{}}
	l.moves = sync.NewCond(&l.mu)
	l.wg.Go(l.accept)
	return l, nil
}

func (l *link) accept() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return
		}
		if !l.add(c) {
			continue
		}
		l.wg.Go(func() {
			defer l.drop(c)
			far, err := net.Dial("tcp", l.to)
			if err != nil || !l.add(far) {
				return
			}
			defer l.drop(far)
			l.wg.Go(func() { l.pump(c, far) })
			l.pump(far, c)
		})
	}
}

// add takes up a connection, unless the wire is cut.
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.closed {
		_ = c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *link) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	_ = c.Close()
}

// piece is what is on its way.
type piece struct {
	data []byte
	due  time.Time
}

// pump carries one direction, and closes both ends after it.
func (l *link) pump(to, from net.Conn) {
	way := make(chan piece, 1024)
	l.wg.Go(func() {
		broken := false
		for p := range way {
			time.Sleep(time.Until(p.due))
			if !broken {
				_, err := to.Write(p.data)
				broken = err != nil
			}
		}
		_ = to.Close()
		_ = from.Close()
	})
	defer close(way)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		for l.standing && !l.cut && !l.closed {
			l.moves.Wait()
		}
		due := time.Now().Add(l.delay)
		l.mu.Unlock()
		if n > 0 {
			way <- piece{slices.Clone(buf[:n]), due}
		}
		if err != nil {
			return
		}
	}
}

// state is what is wrong with a wire: it is cut, it stands still (nothing arrives, and no connection ends), or all
// takes longer.
type state struct {
	cut, standing bool
	delay         time.Duration
}

func (l *link) set(s state) {
	cut := s.cut
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.standing, l.delay = cut, s.standing, s.delay
	if cut {
		l.hangUp()
	}
	l.moves.Broadcast()
}

func (l *link) hangUp() {
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) close() {
	_ = l.ln.Close()
	l.mu.Lock()
	l.closed = true
	l.hangUp()
	l.moves.Broadcast()
	l.mu.Unlock()
	l.wg.Wait()
}
