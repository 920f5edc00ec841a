package jsonscan

import (
	"strings"
	"testing"
)

// FuzzPass holds Pass to Skip: a text that Skip passes without a fault ends at the same byte for both, and no
// text leads Pass beyond its end.
func FuzzPass(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\\\"]",{}],"b":null}`, `"\\"`, `"\\\""`, ` [NaN,-Infinity,""] `, "1e5\n", "", `"a`,
		`[`, `}`, `tr"ue"`, "\xef\xbb\xbf{}", `{"a":"\\\\"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, want := Start(text), Start(text)
		got.Pass()
		if got.I > len(text) || got.Fault != 0 {
			t.Fatalf("%q: at %d, fault %d", text, got.I, got.Fault)
		}
		want.Skip()
		at := want.I
		if want.End(); want.Fault == 0 && got.I != at {
			t.Fatalf("%q: passed to %d, want %d", text, got.I, at)
		}
	})
}

// A value deeper than MaxDepth is passed, and what follows it is read.
func TestPassDeep(t *testing.T) {
	s := Start([]byte(`{"a":` + strings.Repeat(`[{"b":`, MaxDepth) + `1` + strings.Repeat(`}]`, MaxDepth) + `,"c":2}`))
	s.FirstKey()
	s.Pass()
	if k, ok := s.NextKey(); !ok || string(k) != "c" || s.Int() != 2 {
		t.Errorf("the next key is %q, %v, fault %d", k, ok, s.Fault)
	}
}
