// Package zmtp speaks as much of ZeroMQ's protocol, ZMTP 3
// (https://rfc.zeromq.org/spec/23/, with the heartbeats and subscriptions of 3.1,
// https://rfc.zeromq.org/spec/37/), as a publisher of KV events and its
// subscribers need: the security mechanism NULL, and bounds on everything that a
// peer can make the process keep.
package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Flags of a frame.
const (
	More    = 1 // another frame of the message follows
	Long    = 2 // the length has 8 bytes
	Command = 4
)

// MaxFrames bounds the frames of a message that is read.
const MaxFrames = 8

const (
	maxCommand = 4 << 10 // bytes of a command that is read
	firstRead  = 64 << 10
)

// ErrTooLong is in the error for a message or command beyond a bound.
var ErrTooLong = errors.New("zmtp: longer than is allowed")

// Greeting returns the bytes that both sides send first, for version 3.minor.
func Greeting(minor byte) []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, 3, minor
	copy(g[12:], "NULL")
	return g
}

// ReadGreeting reads a peer's greeting. A peer that speaks ZMTP 1 or 2, or demands
// authentication, is an error.
func ReadGreeting(r io.Reader) error {
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
		return fmt.Errorf("zmtp: the peer demands the security mechanism %q; only NULL is spoken",
			known(mech, "PLAIN", "CURVE", "GSSAPI"))
	}
	return nil
}

// known returns word if it is one of words, and "other" otherwise: errors have none of the peer's own words.
func known(word string, words ...string) string {
	if slices.Contains(words, word) {
		return word
	}
	return "other"
}

// AppendFrame appends a frame.
func AppendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|Long)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// AppendMessage appends the frames of a message.
func AppendMessage(b []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = More
		}
		b = AppendFrame(b, flags, f)
	}
	return b
}

// AppendCommand appends a command.
func AppendCommand(b []byte, name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return AppendFrame(b, Command, append(body, data...))
}

// AppendReady appends the command that ends a NULL handshake.
func AppendReady(b []byte, socket string) []byte {
	data := appendProperty(nil, "Socket-Type", socket)
	if socket == "DEALER" || socket == "REQ" || socket == "ROUTER" {
		data = appendProperty(data, "Identity", "")
	}
	return AppendCommand(b, "READY", data)
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

// reader reads frames.
type reader struct {
	r *bufio.Reader
	// limit bounds the bytes of a message.
	limit int
	// command takes the commands between frames.
	command func(name string, data []byte) error
	// grow is called, if it is not nil, before more than firstRead bytes of a
	// message are kept, with the number of further bytes.
	grow func(n int) error
}

// frame reads one frame of at most limit bytes. kept is how many bytes of the same
// message are kept already. Memory is taken as bytes come, not as they are
// announced.
func (r *reader) frame(limit, kept int) (flags byte, body []byte, err error) {
	if flags, err = r.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(More|Long|Command) != 0 || flags&Command != 0 && flags&More != 0 {
		return 0, nil, fmt.Errorf("zmtp: a frame with flags %#x", flags)
	}
	var size uint64
	if flags&Long != 0 {
		var b [8]byte
		if _, err = io.ReadFull(r.r, b[:]); err != nil {
			return 0, nil, unexpected(err)
		}
		size = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := r.r.ReadByte()
		if err != nil {
			return 0, nil, unexpected(err)
		}
		size = uint64(b)
	}
	if flags&Command != 0 {
		limit = min(limit, maxCommand)
	}
	if size > uint64(max(limit, 0)) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, beyond %d", ErrTooLong, size, limit)
	}
	body = make([]byte, 0, min(size, firstRead))
	for uint64(len(body)) < size {
		n := int(min(size-uint64(len(body)), uint64(max(firstRead, len(body)))))
		if r.grow != nil && kept+len(body)+n > firstRead {
			if err := r.grow(n); err != nil {
				return 0, nil, err
			}
		}
		at := len(body)
		body = append(body, make([]byte, n)...)
		if _, err := io.ReadFull(r.r, body[at:]); err != nil {
			return 0, nil, unexpected(err)
		}
	}
	return flags, body, nil
}

// unexpected makes an end inside a message an error of its own.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// message reads a message. within, if it is not nil, is called with true when the
// first byte of the message, or of a command before it, is there, and with false
// before that is waited for.
func (r *reader) message(within func(bool)) ([][]byte, error) {
	var msg [][]byte
	size := 0
	for {
		if within != nil && len(msg) == 0 {
			within(false)
			if _, err := r.r.Peek(1); err != nil {
				return nil, err
			}
			within(true)
		}
		flags, body, err := r.frame(r.limit-size, size)
		if err != nil {
			if len(msg) > 0 {
				err = unexpected(err)
			}
			return nil, err
		}
		if flags&Command != 0 {
			name, data, err := splitCommand(body)
			if err != nil {
				return nil, err
			}
			if err := r.command(name, data); err != nil {
				return nil, err
			}
			continue
		}
		if len(msg) == MaxFrames {
			return nil, fmt.Errorf("%w: a message of more than %d frames", ErrTooLong, MaxFrames)
		}
		msg, size = append(msg, body), size+len(body)
		if flags&More == 0 {
			return msg, nil
		}
	}
}

func splitCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, errors.New("zmtp: a command without its name")
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}
