package prompt

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/jsonscan"
)

// FromValue reads a request with a body that the host has parsed already. See
// [Parser.FromValue].
func FromValue(path string, h http.Header, body any) (router.Prompt, error) {
	return new(Parser).FromValue(path, h, body)
}

// FromValue is [Parser.FromRequest] for a host that has parsed the body: the prompt is that of the body that an
// Encoder of encoding/json would write with SetEscapeHTML(false), without writing it. body is the value that
// encoding/json reads into an any (map[string]any with []any, string, float64 or json.Number, bool and nil in it);
// []map[string]any, []string, integers and json.RawMessage may be in it too. Any other value, such as an SDK's
// structs, is written by encoding/json, which costs more. body is not changed or kept.
//
// As encoding/json does it, members go in the order of their names, and bytes of a string that are no UTF-8 become
// U+FFFD. So if a fleet also routes requests by their bytes, a request with tools, or with arguments of calls that are
// objects, has another text there unless their members are sorted.
//
// A prompt with an error, which is an *Error, can be routed; Offset means nothing here. A value that no JSON
// can hold (NaN, a channel) is ErrType and read as null; one that nests deeper than MaxDepth, such as a map in itself,
// is ErrTooDeep; MaxBody bounds the length in JSON.
func (r Parser) FromValue(path string, h http.Header, body any) (router.Prompt, error) {
	p := parses.Get().(*parse)
	defer p.release()
	e := encoder{b: p.in[:0], scratch: p.tmp, limit: r.WithDefaults().MaxBody}
	e.value(body, 0)
	p.in, p.tmp = e.b, e.scratch
	return r.request(path, h, e.b, e.hard, e.soft)
}

// encoder writes values as JSON that a scanner reads as it would read encoding/json's.
type encoder struct {
	b       []byte
	scratch []byte
	names   []string // of the objects that are being written
	limit   int      // of b; negative: none
	hard    *Error
	soft    *Error
}

func (e *encoder) fail(k ErrorKind) {
	if e.hard == nil {
		e.hard = &Error{Kind: k}
	}
}

// wrong notes a value that JSON cannot hold.
func (e *encoder) wrong() {
	if e.soft == nil {
		e.soft = &Error{Kind: ErrType}
	}
	e.b = append(e.b, "null"...)
}

func (e *encoder) value(v any, depth int) {
	if depth > MaxDepth {
		e.fail(ErrTooDeep)
	}
	if e.limit >= 0 && len(e.b) > e.limit {
		e.fail(ErrTooLarge)
	}
	if e.hard != nil {
		return
	}
	switch v := v.(type) {
	case nil:
		e.b = append(e.b, "null"...)
	case bool:
		e.b = strconv.AppendBool(e.b, v)
	case string:
		e.str(v)
	case float64:
		e.float(v)
	case int:
		e.b = strconv.AppendInt(e.b, int64(v), 10)
	case int64:
		e.b = strconv.AppendInt(e.b, v, 10)
	case uint32:
		e.b = strconv.AppendUint(e.b, uint64(v), 10)
	case json.Number:
		e.number(v)
	case json.RawMessage:
		e.raw(v)
	case map[string]any:
		if v == nil {
			e.b = append(e.b, "null"...)
			return
		}
		e.object(v, depth)
	case []any:
		array(e, v, depth)
	case []map[string]any:
		array(e, v, depth)
	case []string:
		array(e, v, depth)
	case []int:
		array(e, v, depth)
	case []uint32:
		array(e, v, depth)
	default:
		var b bytes.Buffer
		w := json.NewEncoder(&b)
		w.SetEscapeHTML(false)
		if w.Encode(v) != nil {
			e.wrong()
			return
		}
		e.b = append(e.b, b.Bytes()...)
	}
}

func (e *encoder) object(v map[string]any, depth int) {
	lo := len(e.names)
	for k := range v {
		e.names = append(e.names, k)
	}
	slices.Sort(e.names[lo:])
	e.b = append(e.b, '{')
	for i := lo; i < lo+len(v) && e.hard == nil; i++ {
		if i > lo {
			e.b = append(e.b, ',')
		}
		k := e.names[i]
		e.str(k)
		e.b = append(e.b, ':')
		e.value(v[k], depth+1)
	}
	e.b = append(e.b, '}')
	e.names = e.names[:lo]
}

func array[T any](e *encoder, v []T, depth int) {
	if v == nil {
		e.b = append(e.b, "null"...)
		return
	}
	e.b = append(e.b, '[')
	for i, x := range v {
		if e.hard != nil {
			return
		}
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.value(x, depth+1)
	}
	e.b = append(e.b, ']')
}

// str writes a string. Invalid UTF-8 becomes U+FFFD, a byte at a time.
func (e *encoder) str(s string) {
	if !utf8.ValidString(s) {
		valid := make([]rune, 0, len(s))
		for _, r := range s {
			valid = append(valid, r)
		}
		s = string(valid)
	}
	e.scratch = append(e.scratch[:0], s...)
	e.b = jsonscan.AppendQuoted(e.b, e.scratch)
}

func (e *encoder) number(n json.Number) {
	if n == "" { // encoding/json writes it so
		e.b = append(e.b, '0')
		return
	}
	s := jsonscan.Scanner{B: []byte(n)}
	if c := s.Peek(); c == '-' || c >= '0' && c <= '9' {
		s.Scalar(c)
		if s.End(); s.Fault == 0 && s.I == len(n) {
			e.b = append(e.b, n...)
			return
		}
	}
	e.wrong()
}

func (e *encoder) raw(v json.RawMessage) {
	if v == nil {
		e.b = append(e.b, "null"...)
		return
	}
	s := jsonscan.Scanner{B: v}
	s.Skip()
	if s.End(); s.Fault != 0 {
		e.wrong()
		return
	}
	e.b = append(e.b, v...)
}

// float writes a number as encoding/json does, which is as ECMAScript does.
func (e *encoder) float(f float64) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		e.wrong()
		return
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	e.b = strconv.AppendFloat(e.b, f, format, -1, 64)
	if n := len(e.b); format == 'e' && n >= 4 && e.b[n-4] == 'e' && e.b[n-3] == '-' && e.b[n-2] == '0' {
		e.b[n-2] = e.b[n-1] // e-09 is e-9
		e.b = e.b[:n-1]
	}
}
