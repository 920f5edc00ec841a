package vllmtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// zmtp is the serving side of a ZeroMQ connection (ZMTP 3.0, mechanism NULL, with
// the heartbeats and subscriptions of 3.1), as much of it as a publisher needs.
type zmtp struct {
	c  net.Conn
	r  *bufio.Reader
	mu sync.Mutex // writes
}

const (
	zmtpMore, zmtpLong, zmtpCommand = 1, 2, 4

	zmtpMaxFrame  = 1 << 20 // of what clients send
	zmtpMaxFrames = 8
)

var errZMTP = errors.New("vllmtest: the peer does not speak ZMTP 3 with mechanism NULL")

func serverHandshake(c net.Conn, socket string) (*zmtp, error) {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	z := &zmtp{c: c, r: bufio.NewReader(c)}
	hello := make([]byte, 64)
	hello[0], hello[9], hello[10], hello[11] = 0xff, 0x7f, 3, 1
	copy(hello[12:], "NULL")
	if _, err := c.Write(hello); err != nil {
		return nil, err
	}
	var peer [64]byte
	if _, err := io.ReadFull(z.r, peer[:]); err != nil {
		return nil, err
	}
	if peer[0] != 0xff || peer[10] < 3 || !bytes.HasPrefix(peer[12:], []byte("NULL\x00")) {
		return nil, errZMTP
	}
	ready := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(socket)))
	ready = append(ready, socket...)
	if socket == "ROUTER" {
		ready = append(ready, "\x08Identity\x00\x00\x00\x00"...)
	}
	if err := z.write(zmtpFrame(nil, zmtpCommand, ready)); err != nil {
		return nil, err
	}
	flags, body, err := z.frame()
	if err != nil || flags&zmtpCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return nil, errZMTP
	}
	return z, c.SetDeadline(time.Time{})
}

func zmtpFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) < 256 {
		b = append(b, flags, byte(len(body)))
	} else {
		b = binary.BigEndian.AppendUint64(append(b, flags|zmtpLong), uint64(len(body)))
	}
	return append(b, body...)
}

func (z *zmtp) write(b []byte) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	_, err := z.c.Write(b)
	return err
}

func (z *zmtp) send(frames ...[]byte) error {
	var b []byte
	for i, f := range frames {
		flags := byte(zmtpMore)
		if i == len(frames)-1 {
			flags = 0
		}
		b = zmtpFrame(b, flags, f)
	}
	return z.write(b)
}

func (z *zmtp) close() { _ = z.c.Close() }

func (z *zmtp) frame() (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err = io.ReadFull(z.r, head[:2]); err != nil {
		return 0, nil, err
	}
	flags = head[0]
	size := uint64(head[1])
	if flags&zmtpLong != 0 {
		if _, err = io.ReadFull(z.r, head[2:9]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > zmtpMaxFrame {
		return 0, nil, errZMTP
	}
	body = make([]byte, size)
	_, err = io.ReadFull(z.r, body)
	return flags, body, err
}

// recv receives a message. Heartbeats are answered, and subscriptions that come
// as commands are told.
func (z *zmtp) recv(subscribe func(on bool, topic []byte)) ([][]byte, error) {
	var msg [][]byte
	for {
		flags, body, err := z.frame()
		if err != nil {
			return nil, err
		}
		if flags&zmtpCommand != 0 {
			ping, isPing := bytes.CutPrefix(body, []byte("\x04PING"))
			on, isOn := bytes.CutPrefix(body, []byte("\x09SUBSCRIBE"))
			off, isOff := bytes.CutPrefix(body, []byte("\x06CANCEL"))
			switch {
			case isPing && len(ping) >= 2:
				if err := z.write(zmtpFrame(nil, zmtpCommand, append([]byte("\x04PONG"), ping[2:]...))); err != nil {
					return nil, err
				}
			case isOn && subscribe != nil:
				subscribe(true, on)
			case isOff && subscribe != nil:
				subscribe(false, off)
			}
			continue
		}
		if msg = append(msg, body); len(msg) > zmtpMaxFrames {
			return nil, errZMTP
		}
		if flags&zmtpMore == 0 {
			return msg, nil
		}
	}
}
