// Package samples reads the samples of metrics pages that have one of a few
// names: the Prometheus text format and OpenMetrics, as inference engines and
// caches serve them. It keeps neither types nor histograms together; every line is
// a name, labels and a number.
//
// Prometheus' own parser brings protobuf into a program, 7 MB for a few numbers. A
// test in the module expfmttest compares the two.
package samples

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
)

// DefaultMaxLine is far above the longest line that an engine was seen to write.
const DefaultMaxLine = 64 << 10

const maxEmpty = 100 // as package bufio has it

// The errors of a page beyond its bounds.
var (
	ErrPage   = errors.New("the page is too long")
	ErrWanted = errors.New("the page has too many samples with the names that are read")
)

// Reader reads pages and keeps its buffer from one page to the next. The zero
// Reader is ready. It is for one goroutine at a time.
type Reader struct {
	// MaxLine is the size of the buffer in bytes: a line that does not fit is
	// skipped. 0 means DefaultMaxLine. It counts at the first Read.
	MaxLine int
	buf     []byte
}

// Page bounds one page and names its part that is read.
type Page struct {
	// MaxBytes bounds the whole page, MaxWanted the lines that are wanted, both in
	// bytes. A page beyond one of them is ErrPage or ErrWanted.
	MaxBytes, MaxWanted int64
	// Wanted reports whether the samples with this name are read. It must not keep
	// name.
	Wanted func(name []byte) bool
}

// Read returns the wanted samples of body, in the order of the page. A line that
// cannot be read is an error if its name is wanted, and nothing otherwise, so
// that the rest of a page can break nothing. first is the first byte of the page
// that is no white space, 0 for a page without one: a caller recognises a
// page of another format by it.
func (r *Reader) Read(body io.Reader, p Page) (all []Sample, first byte, err error) {
	if r.buf == nil {
		r.buf = make([]byte, cmp.Or(r.MaxLine, DefaultMaxLine))
	}
	var total, wanted int64
	take := func(line []byte) error {
		line = bytes.TrimLeft(bytes.TrimSuffix(line, []byte("\r")), " \t")
		if !named(line, p.Wanted) {
			return nil
		}
		if wanted += int64(len(line)); wanted > p.MaxWanted {
			return ErrWanted
		}
		s, ok, err := Parse(string(line))
		if err != nil {
			return fmt.Errorf("the page: %w", err)
		}
		if ok {
			all = append(all, s)
		}
		return nil
	}
	n, skip := 0, false // how much of a line is in buf; the rest of a long line follows
	empty := 0          // reads in a row that brought nothing
	for {
		k, err := body.Read(r.buf[n:])
		if empty++; k > 0 {
			empty = 0
		} else if err == nil && empty == maxEmpty {
			err = io.ErrNoProgress
		}
		if first == 0 {
			first = firstByte(r.buf[n : n+k])
		}
		if total += int64(k); total > p.MaxBytes {
			return nil, first, ErrPage
		}
		rest := r.buf[:n+k]
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			if !skip {
				if err := take(rest[:i]); err != nil {
					return nil, first, err
				}
			}
			skip, rest = false, rest[i+1:]
		}
		if len(rest) == len(r.buf) {
			skip, rest = true, nil
		}
		n = copy(r.buf, rest)
		switch {
		case err == io.EOF:
			if !skip {
				if err := take(r.buf[:n]); err != nil {
					return nil, first, err
				}
			}
			return all, first, nil
		case err != nil:
			return nil, first, err
		}
	}
}

// named reports whether line, which begins with no blank, is a sample of a name
// that is wanted.
func named(line []byte, wanted func([]byte) bool) bool {
	if len(line) == 0 || line[0] == '#' {
		return false
	}
	if line[0] == '"' || line[0] == '{' {
		s, _, ok, err := Head(string(line)) // rare: engines quote no names
		if ok && err == nil {
			return wanted([]byte(s.Name))
		}
		// Broken lines are kept for their error if they have a name.
		c := cursor{strings.TrimLeft(string(line[1:]), " \t")}
		if line[0] == '"' {
			c.rest = string(line)
		}
		name, err := c.name(true)
		return err == nil && name != "" && wanted([]byte(name))
	}
	i := 0
	for i < len(line) && line[i] != '{' && !blank(line[i]) {
		i++
	}
	return wanted(line[:i])
}

// firstByte returns the first byte that is no white space, 0 if there is none.
func firstByte(b []byte) byte {
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) > 0 {
		return b[0]
	}
	return 0
}
