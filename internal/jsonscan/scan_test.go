package jsonscan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// tree reads the value that is next as encoding/json reads it into an any, objects as lists of names and values.
func tree(s *Scanner) any {
	switch c := s.Peek(); c {
	case '{':
		out := []any{"object"}
		for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
			out = append(out, string(k), tree(s))
		}
		return out
	case '[':
		out := []any{"array"}
		for ok := s.FirstElem(); ok; ok = s.NextElem() {
			out = append(out, tree(s))
		}
		return out
	case '"':
		return string(s.AppendString(nil))
	default:
		return json.Number(s.Scalar(c))
	}
}

// theirs reads a value with encoding/json into the same form.
func theirs(d *json.Decoder) any {
	t, err := d.Token()
	if err != nil {
		panic(err)
	}
	switch t := t.(type) {
	case json.Delim:
		out := []any{map[json.Delim]string{'{': "object", '[': "array"}[t]}
		for d.More() {
			if t == '{' {
				k, _ := d.Token()
				out = append(out, k)
			}
			out = append(out, theirs(d))
		}
		d.Token()
		return out
	case string:
		return t
	case json.Number:
		return t
	case bool:
		if t {
			return json.Number("true")
		}
		return json.Number("false")
	}
	return json.Number("null")
}

// plainJSON returns b with null in the place of the extensions that Python's reader
// takes beyond RFC 8259.
func plainJSON(b []byte) []byte {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	var out []byte
	for i := 0; i < len(b); {
		if b[i] == '"' { // a string, as it is
			j := i + 1
			for j < len(b) && b[j] != '"' {
				if b[j] == '\\' {
					j++
				}
				j++
			}
			j = min(j+1, len(b))
			out = append(out, b[i:j]...)
			i = j
			continue
		}
		n := 0
		for _, w := range []string{"-Infinity", "Infinity", "NaN"} {
			if bytes.HasPrefix(b[i:], []byte(w)) {
				n = len(w)
				break
			}
		}
		if n > 0 {
			out = append(out, "null"...)
			i += n
			continue
		}
		out = append(out, b[i])
		i++
	}
	return out
}

// FuzzScanner holds the Scanner to encoding/json: except for texts that only Python takes, the same
// texts are JSON, with the same in them.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0.5e+3,true,false,null,"x\n\u00e9\ud83d\ude00\ud800"],"b":{},"c":[]}`, `[[[[`, `"\ud83d`,
		`[NaN,-Infinity,Infinity]`, "\xef\xbb\xbf1", `[-NaN]`, `{"a":1,}`, `01`, `{"a" : "b"} x`,
		"\"a\x01\"", "\"\xff\xfe\"", `{"type":"\u0074","usage":{"usage":{"usage":{}}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := Start(b)
		got := tree(&s)
		s.End()
		if s.I > len(b) || s.Ahead != 0 {
			t.Fatalf("%q: at %d, %d ahead", b, s.I, s.Ahead)
		}
		if s.Fault == TooDeep {
			return
		}
		if (s.Fault == 0) != json.Valid(plainJSON(b)) {
			t.Fatalf("%q: fault %d at %d", b, s.Fault, s.At)
		}
		skip := Start(b)
		skip.Skip()
		if skip.End(); skip.Fault != s.Fault || skip.Fault == 0 && skip.I != s.I {
			t.Fatalf("%q: passed with fault %d at %d, read with %d at %d", b, skip.Fault, skip.I, s.Fault, s.I)
		}
		if s.Fault != 0 || !utf8.Valid(b) || !json.Valid(b) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if diff := cmp.Diff(theirs(d), got); diff != "" {
			t.Fatalf("%q: %s", b, diff)
		}
	})
}

// FuzzStrings holds the ways to read a string to one another, and writing one to reading it.
func FuzzStrings(f *testing.F) {
	f.Add([]byte(`"a\u00e9\\\"\n` + "\xff" + `"`))
	f.Add([]byte(`"` + strings.Repeat(`plain text `, 10) + `\ud83d\ude00"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != '"' {
			return
		}
		one, two, three := Scanner{B: b}, Scanner{B: b}, Scanner{B: b}
		text := one.AppendString(nil)
		fast := two.CopyString(nil)
		canon := three.AppendCanon(nil)
		if one.Fault != two.Fault || one.Fault != three.Fault || one.Fault == 0 && (one.I != two.I || one.I != three.I) {
			t.Fatalf("%q: faults %d, %d, %d at %d, %d, %d", b, one.Fault, two.Fault, three.Fault, one.I, two.I, three.I)
		}
		if one.Fault != 0 {
			return
		}
		if !bytes.Equal(text, fast) {
			t.Fatalf("%q: %q and %q", b, text, fast)
		}
		if bytes.IndexByte(text, Mark) >= 0 {
			t.Fatalf("%q: a mark in %q", b, text)
		}
		if want := AppendQuoted(nil, text); utf8.Valid(b) && !bytes.Equal(want, canon) {
			t.Fatalf("%q: canonical %q, of its text %q", b, canon, want)
		}
		for n := range len(text) + 1 {
			if cut := Boundary(text, n); cut > n || utf8.Valid(text) && !utf8.Valid(text[:cut]) {
				t.Fatalf("%q cut at %d: %q", text, n, text[:cut])
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	s := Scanner{B: []byte(`{"a":7,"b":4294967295,"c":4294967296,"d":-1,"e":1.5,"f":"7"}`)}
	for name, want := range map[string]int{"a": 7, "b": 1<<31 - 1, "c": 0, "d": 0, "e": 0, "f": 0, "g": 0} {
		if got := s.IntOf(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if got := string(s.Member("f")); got != "7" {
		t.Errorf("%q", got)
	}
}
