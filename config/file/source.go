package file

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// The bounds of a file. They allow 1,000 replicas in several routes, and bound the cost
// of a hostile file to a second: the parser's checks for duplicates grow with the square
// of the number of keys in one table.
const (
	maxSize    = 4 << 20 // bytes
	maxDepth   = 16      // nested brackets, and parts of a dotted key
	maxKeys    = 10_000  // keys in one table, as long as no header comes between
	maxHeaders = 20_000
	maxCommas  = 100_000
)

// A place is the offsets of a key and of its value.
type place struct{ key, value int }

// A source is a parsed file and the places of all that is in it.
type source struct {
	path   string // the file's name
	data   []byte
	tree   map[string]any
	places map[string]place
	lines  []int // offsets of their beginnings
}

// The steps of the paths in source.places. No key holds these bytes, as TOML
// does not allow them there unescaped, and an escaped one that does is unknown.
func child(path, key string) string  { return path + "\x00" + key }
func elem(path string, i int) string { return path + "\x01" + strconv.Itoa(i) }

// parse reads data as TOML. It returns a Problem for the first mistake of syntax; after
// it nothing is certain.
func parse(data []byte) (*source, *Problem) {
	s := &source{data: data, places: make(map[string]place), lines: []int{0}}
	if len(data) > maxSize {
		return nil, &Problem{Message: fmt.Sprintf("the file has more than %d bytes", maxSize)}
	}
	for i, c := range data {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	if at, why := tooMuch(data); why != "" {
		return nil, s.problem(at, "", why)
	}
	if err := toml.Unmarshal(data, &s.tree); err != nil {
		var d *toml.DecodeError
		p := &Problem{Message: strings.TrimPrefix(err.Error(), "toml: ")}
		if errors.As(err, &d) {
			p.Line, p.Column = d.Position()
			p.Key = strings.Join(d.Key(), ".")
		}
		return nil, p
	}
	if err := s.locate(); err != nil {
		return nil, &Problem{Message: err.Error()}
	}
	return s, nil
}

// tooMuch returns the place at which data exceeds a bound, and the reason. It reads no
// more of TOML than strings, comments and brackets, and agrees with the parser up to the
// first mistake, at which the parser ends.
func tooMuch(data []byte) (at int, why string) {
	var depth, dots, keys, headers, commas int
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '#':
			n := bytes.IndexByte(data[i:], '\n')
			if n < 0 {
				return 0, ""
			}
			i += n - 1 // the line's end is looked at
		case '"', '\'':
			i = skipString(data, i)
		case '[', '{':
			if depth++; depth > maxDepth {
				return i, fmt.Sprintf("brackets are nested more than %d deep", maxDepth)
			}
			if c == '[' && depth == 1 && startsLine(data, i) {
				if headers++; headers > maxHeaders {
					return i, fmt.Sprintf("more than %d tables", maxHeaders)
				}
				keys = 0
			}
			dots = 0
		case ']', '}':
			depth = max(depth-1, 0)
			dots = 0
		case '.':
			if dots++; dots > maxDepth {
				return i, fmt.Sprintf("a key of more than %d parts", maxDepth)
			}
		case '=':
			if keys++; keys > maxKeys {
				return i, fmt.Sprintf("more than %d keys in one table", maxKeys)
			}
			dots = 0
		case ',':
			if commas++; commas > maxCommas {
				return i, fmt.Sprintf("more than %d values in lists", maxCommas)
			}
			dots = 0
		case '\n':
			dots = 0
		}
	}
	return 0, ""
}

func startsLine(data []byte, i int) bool {
	for i--; i >= 0 && (data[i] == ' ' || data[i] == '\t'); i-- {
	}
	return i < 0 || data[i] == '\n'
}

// skipString returns the offset of the last byte of the string that begins at i.
func skipString(data []byte, i int) int {
	quote := data[i]
	multi := i+2 < len(data) && data[i+1] == quote && data[i+2] == quote
	if multi {
		i += 2
	}
	for i++; i < len(data); i++ {
		switch c := data[i]; {
		case c == '\\' && quote == '"':
			i++
		case c == quote && !multi:
			return i
		case c == quote && i+2 < len(data) && data[i+1] == quote && data[i+2] == quote:
			i += 2
			for i+1 < len(data) && data[i+1] == quote { // up to two quotes may end the text
				i++
			}
			return i
		case c == '\n' && !multi:
			return i // not closed, a mistake
		}
	}
	return i
}

// locate fills places.
func (s *source) locate() error {
	var p unstable.Parser
	p.Reset(s.data)
	count := make(map[string]int) // the elements of arrays of tables
	prefix := ""
	// header resolves a header's key: a step through an array goes to its last
	// element.
	header := func(n *unstable.Node) {
		prefix = ""
		for it := n.Key(); it.Next(); {
			k := it.Node()
			prefix = child(prefix, string(k.Data))
			if it.IsLast() && n.Kind == unstable.ArrayTable {
				count[prefix]++
			}
			if i := count[prefix]; i > 0 {
				prefix = elem(prefix, i-1)
			}
			if _, known := s.places[prefix]; !known || it.IsLast() {
				s.places[prefix] = place{int(k.Raw.Offset), int(k.Raw.Offset)}
			}
		}
	}
	for p.NextExpression() {
		switch n := p.Expression(); n.Kind {
		case unstable.Table, unstable.ArrayTable:
			header(n)
		case unstable.KeyValue:
			s.keyValue(prefix, n)
		}
	}
	return p.Error()
}

func (s *source) keyValue(prefix string, n *unstable.Node) {
	at := 0
	for it := n.Key(); it.Next(); {
		k := it.Node()
		at = int(k.Raw.Offset)
		prefix = child(prefix, string(k.Data))
		if _, known := s.places[prefix]; !known {
			s.places[prefix] = place{at, at}
		}
	}
	s.value(prefix, at, n.Value())
}

// value records the place of n. Its key is at the offset key.
func (s *source) value(path string, key int, n *unstable.Node) {
	at := place{key, key}
	if n.Raw.Length > 0 {
		at.value = int(n.Raw.Offset)
	}
	s.places[path] = at
	switch n.Kind {
	case unstable.Array:
		i := 0
		for it := n.Children(); it.Next(); i++ {
			s.value(elem(path, i), at.value, it.Node())
		}
	case unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			s.keyValue(path, it.Node())
		}
	}
}

// problem makes a Problem at an offset.
func (s *source) problem(offset int, key, message string) *Problem {
	line := sort.SearchInts(s.lines, offset+1)
	start := s.lines[line-1]
	offset = min(offset, len(s.data))
	return &Problem{File: s.path, Line: line, Column: 1 + utf8.RuneCount(s.data[start:offset]), Key: key, Message: message}
}
