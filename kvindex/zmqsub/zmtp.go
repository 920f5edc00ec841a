package zmqsub

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The part of ZMTP 3.0 (https://rfc.zeromq.org/spec/23/) that a SUB and a DEALER
// need, with the heartbeats of 3.1 (spec 37): the NULL mechanism, and a bound on
// everything that a peer can make us keep.

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	maxFrames  = 8       // of a message
	maxCommand = 4 << 10 // bytes of one
)

var errTooLong = errors.New("zmtp: longer than is allowed")

// greeting is what both sides send first.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// readGreeting reads the peer's. A peer that speaks ZMTP 1 or 2, or wants to know
// who we are, is an error.
func readGreeting(r io.Reader) error {
	var g [64]byte
	if _, err := io.ReadFull(r, g[:11]); err != nil {
		return err
	}
	if g[0] != 0xff || g[9]&1 != 1 {
		return errors.New("zmtp: the peer does not speak ZeroMQ")
	}
	if g[10] < 3 {
		return fmt.Errorf("zmtp: the peer speaks version %d; at least 3 is needed", g[10])
	}
	if _, err := io.ReadFull(r, g[11:]); err != nil {
		return err
	}
	if mech := string(bytes.TrimRight(g[12:32], "\x00")); mech != "NULL" {
		return fmt.Errorf("zmtp: the peer wants the security mechanism %q; only NULL is spoken", mech)
	}
	return nil
}

// appendFrame appends a frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// appendMessage appends the frames of a message.
func appendMessage(b []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		b = appendFrame(b, flags, f)
	}
	return b
}

// appendCommand appends a command.
func appendCommand(b []byte, name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return appendFrame(b, flagCommand, append(body, data...))
}

// appendReady appends what ends a NULL handshake.
func appendReady(b []byte, socket string) []byte {
	data := appendProperty(nil, "Socket-Type", socket)
	if socket == "DEALER" || socket == "REQ" {
		data = appendProperty(data, "Identity", "")
	}
	return appendCommand(b, "READY", data)
}

func appendProperty(b []byte, name, value string) []byte {
	b = append(append(b, byte(len(name))), name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// property returns the value of a property of a READY command.
func property(data []byte, name string) (string, error) {
	for len(data) > 0 {
		n := int(data[0])
		if len(data) < 1+n+4 {
			break
		}
		key := data[1 : 1+n]
		size := binary.BigEndian.Uint32(data[1+n:])
		data = data[1+n+4:]
		if uint64(size) > uint64(len(data)) {
			break
		}
		if bytes.EqualFold(key, []byte(name)) {
			return string(data[:size]), nil
		}
		data = data[size:]
	}
	return "", fmt.Errorf("zmtp: READY without %s", name)
}

// readFrame reads one frame of at most limit bytes. What a peer announces costs
// no memory before it has sent it.
func readFrame(r *bufio.Reader, limit int) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, nil, fmt.Errorf("zmtp: a frame with flags %#x", flags)
	}
	var size uint64
	if flags&flagLong != 0 {
		var b [8]byte
		if _, err = io.ReadFull(r, b[:]); err != nil {
			return 0, nil, cut(err)
		}
		size = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, cut(err)
		}
		size = uint64(b)
	}
	if flags&flagCommand != 0 {
		limit = min(limit, maxCommand)
	}
	if size > uint64(max(limit, 0)) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, beyond %d", errTooLong, size, limit)
	}
	const step = 64 << 10
	body = make([]byte, 0, min(size, step))
	for uint64(len(body)) < size {
		n := int(min(size-uint64(len(body)), uint64(max(step, len(body)))))
		at := len(body)
		body = append(body, make([]byte, n)...)
		if _, err := io.ReadFull(r, body[at:]); err != nil {
			return 0, nil, cut(err)
		}
	}
	return flags, body, nil
}

// cut makes an end in the midst of something an error of its own.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readMessage reads a message of at most limit bytes in all. Commands between its
// frames, and before it, are handed to command.
func readMessage(r *bufio.Reader, limit int, command func(name string, data []byte) error) ([][]byte, error) {
	var msg [][]byte
	left := limit
	for {
		flags, body, err := readFrame(r, left)
		if err != nil {
			if len(msg) > 0 {
				err = cut(err)
			}
			return nil, err
		}
		if flags&flagCommand != 0 {
			if len(body) == 0 || len(body) < 1+int(body[0]) {
				return nil, errors.New("zmtp: a command without its name")
			}
			n := 1 + int(body[0])
			if err := command(string(body[1:n]), body[n:]); err != nil {
				return nil, err
			}
			continue
		}
		if len(msg) == maxFrames {
			return nil, fmt.Errorf("%w: a message of more than %d frames", errTooLong, maxFrames)
		}
		msg, left = append(msg, body), left-len(body)
		if flags&flagMore == 0 {
			return msg, nil
		}
	}
}
