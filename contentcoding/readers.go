package contentcoding

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxWindow is the greatest window of zstd, in bytes: the one that RFC 8878, section 3.1.1.1.2, recommends to
	// support. Encoders take less unless they are asked for long distances.
	maxWindow = 8 << 20
	// maxMembers bounds the members of a gzip body. An empty one costs more than its bytes.
	maxMembers = 1 << 10
)

// readers is the memory of one decoding, which is used again.
type readers struct {
	zstd *zstd.Decoder
	buf  [32 << 10]byte
}

// open returns a reader of body without the codings, the last of which was applied last.
func (rs *readers) open(codings []string, body []byte) (io.Reader, error) {
	var r io.Reader = bytes.NewReader(body)
	for i := len(codings) - 1; i >= 0; i-- {
		var err error
		switch codings[i] {
		case "zstd":
			r, err = rs.openZstd(r, i == len(codings)-1)
		case "gzip":
			r, err = openGzip(r)
		default:
			r, err = openDeflate(r)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// openZstd uses the kept decoder if it is free, which is so for the coding that is decoded first.
func (rs *readers) openZstd(r io.Reader, kept bool) (io.Reader, error) {
	if kept && rs.zstd != nil {
		return rs.zstd, rs.zstd.Reset(r)
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err == nil && kept {
		rs.zstd = d
	}
	return d, err
}

func openGzip(r io.Reader) (io.Reader, error) {
	from := bufio.NewReader(r)
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, unexpected(err)
	}
	z.Multistream(false)
	return &members{z: z, from: from}, nil
}

// members reads the members of a gzip body one after the other.
type members struct {
	z    *gzip.Reader
	from *bufio.Reader // nothing behind a member is read with it
	n    int
}

func (m *members) Read(p []byte) (int, error) {
	for {
		n, err := m.z.Read(p)
		if err != io.EOF {
			return n, err
		}
		if n > 0 {
			return n, nil
		}
		if m.n++; m.n >= maxMembers {
			return 0, errors.New("too many members")
		}
		if err := m.z.Reset(m.from); err != nil {
			return 0, err // io.EOF: there is no further member
		}
		m.z.Multistream(false)
	}
}

// openDeflate opens a body in the format of zlib, which the coding deflate names (RFC 9110, section 8.4.1.2), or
// without its frame, as some clients send it.
func openDeflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err != nil {
		return nil, unexpected(err)
	}
	var z io.Reader
	if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		if z, err = zlib.NewReader(b); err != nil {
			return nil, err
		}
	} else {
		z = flate.NewReader(b)
	}
	return &alone{z, b}, nil
}

// alone reads a stream that has to be all of its body.
type alone struct {
	io.Reader
	rest *bufio.Reader
}

func (a *alone) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if err == io.EOF {
		if _, more := a.rest.ReadByte(); more == nil {
			err = errors.New("bytes follow the stream")
		}
	}
	return n, err
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// release lets go of the body.
func (rs *readers) release() {
	if rs.zstd != nil {
		_ = rs.zstd.Reset(nil) // fails never without a reader
	}
}
