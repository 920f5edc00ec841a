package sse

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// naive splits a whole stream line by line, as the standard says it.
func naive(stream string, limit int) []string {
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	var out []string
	data, lost := "", false
	for _, l := range lines[:len(lines)-1] {
		if l == "" {
			if data != "" {
				out = append(out, fmt.Sprint(!lost, data))
			}
			data, lost = "", false
			continue
		}
		v, ok := strings.CutPrefix(l, "data:")
		if !ok {
			continue
		}
		v = strings.TrimPrefix(v, " ")
		if data != "" {
			if len(data) >= limit {
				lost = true
				continue
			}
			data += "\n"
		}
		if left := limit - len(data); len(v) > left {
			v, lost = v[:left], true
		}
		data += v
	}
	return out
}

func read(stream string, limit, step int) ([]string, *Reader) {
	r := &Reader{Max: limit}
	var out []string
	for b := []byte(stream); len(b) > 0; {
		n := min(step, len(b))
		part := bytes.Clone(b[:n])
		r.Write(part, func(data []byte, whole bool) { out = append(out, fmt.Sprint(whole, string(data))) }, nil)
		for i := range part {
			part[i] = 'x' // nothing of it is kept
		}
		b = b[n:]
	}
	return out, r
}

// FuzzReader holds the Reader to the naive one, however the stream is cut, and its work and memory to their bounds.
func FuzzReader(f *testing.F) {
	f.Add("data: a\n\ndata:b\r\ndata: c\r\n\r\n: x\n\ndata: d", 100, 3)
	f.Add("data: a\rdata: b\r\revent: e\rdata: c\r\r", 5, 1)
	f.Add(strings.Repeat("\r", 300), 10, 300)
	f.Add("data: "+strings.Repeat("long", 50)+"\n\ndata: x\n\n", 20, 7)
	f.Fuzz(func(t *testing.T, stream string, limit, step int) {
		limit, step = min(max(limit, 1), 1<<16), max(step, 1)
		got, r := read(stream, limit, step)
		if d := cmp.Diff(naive(stream, limit), got); d != "" {
			t.Errorf("limit %d, in steps of %d: %s", limit, step, d)
		}
		if r.looked > 5*len(stream) {
			t.Errorf("%d bytes were looked at %d times", len(stream), r.looked)
		}
		if len(r.line) > limit+len("data: ") || len(r.data) > limit {
			t.Errorf("limit %d: %d and %d bytes are held", limit, len(r.line), len(r.data))
		}
	})
}

// TestWork: a stream of line ends, of either kind and of both, costs its length.
func TestWork(t *testing.T) {
	for _, s := range []string{"\r", "\n", "\r\n", "\r\r\n", "x\r", "data: \r", "data: x\n\r", ":\r"} {
		stream := strings.Repeat(s, 1<<16/len(s))
		for _, step := range []int{1, 1000, 1 << 30} {
			_, r := read(stream, 1<<20, step)
			if r.looked > 5*len(stream) {
				t.Errorf("%q in steps of %d: %d bytes were looked at %d times", s, step, len(stream), r.looked)
			}
		}
	}
}

// TestRest: what is dropped of an event's data is given away as it comes.
func TestRest(t *testing.T) {
	r := &Reader{Max: 4}
	var rest, held string
	for _, part := range []string{"data: abc", "def", "ghi\n", "\ndata: x\n\n"} {
		r.Write([]byte(part), func([]byte, bool) {}, func(b []byte) {
			if rest == "" {
				held = string(r.Held())
			}
			rest += string(b)
		})
	}
	if held+rest != "abcdefghi" {
		t.Errorf("%q and %q", held, rest)
	}
}
