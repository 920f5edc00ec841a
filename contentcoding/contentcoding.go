// Package contentcoding decodes compressed bodies of HTTP requests within bounds, for hosts that read bodies before
// they route them.
//
// Agents compress their requests: Codex sends zstd, other clients gzip. Engines do not read compressed bodies, so a
// host decodes a body once, routes by it, and sends it on decoded, without Content-Encoding:
//
//	d, err := contentcoding.New(contentcoding.Config{})
//	...
//	body, err = d.Decode(r.Context(), r.Header.Values("Content-Encoding"), body)
//	contentcoding.Remove(r.Header)
//
// Decoded are zstd, gzip (also as x-gzip), deflate, and identity, which means none. The package is the only one of the
// library that needs a decoder of zstd, so programs that do not import it do not build or fetch one.
package contentcoding

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"

	"github.com/warmroute/router/internal/configerr"
)

// Config bounds the work of a Decoder. The zero Config works.
type Config struct {
	// MaxBytes bounds a decoded body, in bytes. 0 means 32 MiB.
	MaxBytes int64
	// MaxRatio bounds the decoded bytes for each compressed byte, beyond the first MiB. 0 means 200. A JSON body of
	// text has 3 to 10; of one repeated word, up to some thousands.
	MaxRatio int64
	// Concurrent bounds the bodies that are decoded at the same time; others wait. Each takes up to 10 MiB of
	// memory of its own. 0 means GOMAXPROCS.
	Concurrent int
}

// WithDefaults returns c with the default in place of each field that is zero.
func (c Config) WithDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 32<<20)
	c.MaxRatio = cmp.Or(c.MaxRatio, 200)
	c.Concurrent = cmp.Or(c.Concurrent, runtime.GOMAXPROCS(0))
	return c
}

// The errors of a Decoder, in addition to those of a writer and of a ctx. ErrUnsupported is found in an
// *[UnsupportedError].
var (
	// ErrUnsupported reports a coding that is not decoded: the answer to the client is 415.
	ErrUnsupported error = &codingError{http.StatusUnsupportedMediaType, "the content coding is not supported"}
	// ErrTooLarge reports a body that exceeds a bound when it is decoded: 413.
	ErrTooLarge error = &codingError{http.StatusRequestEntityTooLarge, "the decoded body is too large"}
	// ErrMalformed reports a body that is not of its coding, or breaks off: 400.
	ErrMalformed error = &codingError{http.StatusBadRequest, "the body cannot be decoded"}
)

// codingError is an error that says how it is answered, for hosts that do not know this package.
type codingError struct {
	status int
	text   string
}

func (e *codingError) Error() string   { return e.text }
func (e *codingError) StatusCode() int { return e.status }

// UnsupportedError reports the first coding of a body that is not decoded. It is returned by pointer.
type UnsupportedError struct {
	// Coding is as the client named it, cut to 64 bytes.
	Coding string
}

// Error names the coding and the supported ones.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%v: %q; supported are %s", ErrUnsupported, e.Coding, Supported())
}

// AcceptEncoding returns Supported, for the header of the answer.
func (e *UnsupportedError) AcceptEncoding() string { return Supported() }

// Unwrap returns ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// Supported returns the codings that are decoded, as a value of the header Accept-Encoding of an answer with the
// status 415 (RFC 9110, section 12.5.3).
func Supported() string { return "zstd, gzip, deflate, identity" }

// maxCodings bounds the codings that were applied to one body. Each is work for the whole of it.
const maxCodings = 3

// Encoded reports whether values, those of the header Content-Encoding, name a coding other than identity.
func Encoded(values []string) bool {
	for _, v := range values {
		for c := range strings.SplitSeq(v, ",") {
			if c = strings.TrimSpace(c); c != "" && !strings.EqualFold(c, "identity") {
				return true
			}
		}
	}
	return false
}

// codings returns the codings of values, in the order in which they were applied.
func codings(values []string) ([]string, error) {
	var list []string
	for _, v := range values {
		for c := range strings.SplitSeq(v, ",") {
			name := strings.ToLower(strings.TrimSpace(c))
			switch name {
			case "", "identity":
				continue
			case "x-gzip":
				name = "gzip"
			case "zstd", "gzip", "deflate":
			default:
				c = strings.TrimSpace(c)
				return nil, &UnsupportedError{Coding: c[:min(64, len(c))]}
			}
			if list = append(list, name); len(list) > maxCodings {
				return nil, &UnsupportedError{Coding: "more than three codings"}
			}
		}
	}
	return list, nil
}

// Check returns an *[UnsupportedError] if a body with these values of Content-Encoding is not decoded, so that a host
// can refuse it unread.
func Check(values []string) error {
	_, err := codings(values)
	return err
}

// Remove removes the headers that no longer apply to a body that was decoded. The host sets the length.
func Remove(h http.Header) {
	h.Del("Content-Encoding")
	h.Del("Content-Length")
	h.Del("Content-Digest") // RFC 9530: of the content as it was sent
	h.Del("Content-Md5")
	h.Del("Digest")
}

// Decoder decodes bodies. It is safe for concurrent use and starts no goroutine. Make one with New.
type Decoder struct {
	cfg  Config
	free chan *readers // as many as may be in use
}

// New returns a Decoder. The error is a *router.ConfigError for each field that is negative, joined.
func New(c Config) (*Decoder, error) {
	bad := configerr.List{Package: "contentcoding"}
	bad.Check(c.MaxBytes >= 0, "MaxBytes", c.MaxBytes, "at least 1, or 0 for the default")
	bad.Check(c.MaxRatio >= 0 && c.MaxRatio <= 1<<30, "MaxRatio", c.MaxRatio, "1 to 1,073,741,824, or 0 for the default")
	bad.Check(c.Concurrent >= 0 && c.Concurrent <= 1<<16, "Concurrent", c.Concurrent, "0 to 65,536")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	d := &Decoder{cfg: c, free: make(chan *readers, c.Concurrent)}
	for range c.Concurrent {
		d.free <- nil
	}
	return d, nil
}

// Decode returns body without the codings that values, those of Content-Encoding, name. If there are none, that is
// body itself. An empty body has no codings, whatever the header says.
func (d *Decoder) Decode(ctx context.Context, values []string, body []byte) ([]byte, error) {
	if len(body) == 0 || !Encoded(values) {
		return body, nil
	}
	var out bytes.Buffer
	if err := d.DecodeTo(ctx, &out, values, body); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// DecodeTo writes body to w without the codings that values name, as it is decoded. An error of w is returned
// unchanged. It waits for one of Config.Concurrent places, until ctx ends.
func (d *Decoder) DecodeTo(ctx context.Context, w io.Writer, values []string, body []byte) error {
	list, err := codings(values)
	if err != nil {
		return err
	}
	if len(list) == 0 || len(body) == 0 {
		_, err := w.Write(body)
		return err
	}
	var rs *readers
	select {
	case rs = <-d.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	if rs == nil {
		rs = new(readers)
	}
	defer func() {
		rs.release()
		d.free <- rs
	}()
	r, err := rs.open(list, body)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMalformed, strings.Join(list, ", "), err)
	}
	most := min(d.cfg.MaxBytes, 1<<20+d.cfg.MaxRatio*int64(len(body)))
	for total := int64(0); ; {
		n, err := r.Read(rs.buf[:])
		if total += int64(n); total > most {
			return ErrTooLarge
		}
		if n > 0 {
			if _, err := w.Write(rs.buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %s: %w", ErrMalformed, strings.Join(list, ", "), err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
