// Package sse splits streams of server-sent events (WHATWG HTML, section 9.2.6) as they pass by.
package sse

import "bytes"

// A Reader collects the data of each event. Its zero value is ready to use, for one stream, after Max was set;
// it is not safe for concurrent use. It reads each byte a fixed number of times, however the stream is cut and
// whatever its lines end with.
type Reader struct {
	// Max is the greatest data of one event that is held, in bytes. Data beyond it is dropped.
	Max int
	// Grow returns b with the capacity for n further bytes, most in all, or for as many as there is memory for. The data
	// beyond it is dropped. nil: there is always memory.
	Grow func(b []byte, n, most int) []byte

	line  []byte // the line that has not ended
	data  []byte // the data lines of the event that has not ended
	lost  bool   // a part of line or data was dropped
	hasCR bool   // the last byte was a CR, so a LF that follows ends no further line

	looked int // bytes that were searched or copied
}

// Write takes the next bytes of the stream, cut anywhere, and calls event for each event that ends in them. data
// is good until event returns; whole is false if a part of it was dropped. rest, if it is not nil, is called
// with the dropped part of a data line, as it comes.
func (r *Reader) Write(b []byte, event func(data []byte, whole bool), rest func([]byte)) {
	lf, cr := -1, -1 // the next of each in b, len(b) for none: looked for once
	for at := 0; at < len(b); {
		if r.hasCR {
			r.hasCR = false
			if b[at] == '\n' {
				at++
				continue
			}
		}
		lf, cr = r.find(b, at, lf, '\n'), r.find(b, at, cr, '\r')
		end := min(lf, cr)
		if end == len(b) {
			r.hold(b[at:], rest)
			return
		}
		r.hasCR = b[end] == '\r'
		line := b[at:end]
		if len(r.line) > 0 || len(line) > r.max() {
			r.hold(line, rest)
			line = r.line
		}
		r.take(line, event)
		r.line = r.line[:0]
		at = end + 1
	}
}

func (r *Reader) max() int { return r.Max + len("data: ") }

// find returns the index of the next c at or after at; was is the previous result.
func (r *Reader) find(b []byte, at, was int, c byte) int {
	if was >= at {
		return was
	}
	i := bytes.IndexByte(b[at:], c)
	if i < 0 {
		r.looked += len(b) - at
		return len(b)
	}
	r.looked += i + 1
	return at + i
}

// hold appends b to the line, as far as it goes.
func (r *Reader) hold(b []byte, rest func([]byte)) {
	r.looked += len(b)
	left := max(r.max()-len(r.line), 0)
	if r.Grow != nil {
		r.line = r.Grow(r.line, min(len(b), left), r.max())
		left = min(left, cap(r.line)-len(r.line))
	}
	if len(b) > left {
		r.line = append(r.line, b[:left]...)
		if bytes.HasPrefix(r.line, field) {
			r.lost = true
			if rest != nil {
				rest(b[left:])
			}
		}
		return
	}
	r.line = append(r.line, b...)
}

var field = []byte("data:")

// take reads a whole line.
func (r *Reader) take(line []byte, event func([]byte, bool)) {
	if len(line) == 0 {
		if len(r.data) > 0 {
			event(r.data, !r.lost)
		}
		r.data, r.lost = r.data[:0], false
		return
	}
	v, ok := bytes.CutPrefix(line, field)
	if !ok {
		return
	}
	v = bytes.TrimPrefix(v, []byte(" "))
	if len(r.data) > 0 {
		if len(r.data) >= r.Max || r.Grow != nil && len(r.data) == cap(r.data) {
			r.lost = true
			return
		}
		r.data = append(r.data, '\n')
	}
	left := r.Max - len(r.data)
	if r.Grow != nil {
		r.data = r.Grow(r.data, min(len(v), left), r.Max)
		left = min(left, cap(r.data)-len(r.data))
	}
	if len(v) > left {
		v, r.lost = v[:max(left, 0)], true
	}
	r.data = append(r.data, v...)
	r.looked += len(v)
}

// Work returns how many bytes were searched or copied so far, which is linear in the bytes written.
func (r *Reader) Work() int { return r.looked }

// Held returns the data of the event that has not ended, with the part of its last line that has come. At the first
// call of rest it is the data before the dropped part.
func (r *Reader) Held() []byte {
	v, _ := bytes.CutPrefix(r.line, field)
	v = bytes.TrimPrefix(v, []byte(" "))
	if len(r.data) == 0 {
		return v
	}
	return append(append(r.data[:len(r.data):len(r.data)], '\n'), v...)
}
