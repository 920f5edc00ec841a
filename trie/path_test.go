package trie

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// nodesAlong returns how many nodes Match passes.
func (t *Trie) nodesAlong(text string) int {
	n, nodes := t.roots["m"], 0
	for text != "" {
		if n = t.child(n, text[0]); n == 0 {
			break
		}
		nodes++
		text = text[min(len(text), int(t.nodes.at(n).size)):]
	}
	return nodes
}

// TestLongPath: texts that end, or branch off, at each byte of another one do not make a node of
// each byte for long, and who was sent the whole one still holds it.
func TestLongPath(t *testing.T) {
	const size = 5000
	whole := strings.Repeat("0123456789", size/10)
	var longer []string
	for n := 1; n < size; n++ {
		longer = append(longer, whole[:n])
	}
	shorter := slices.Clone(longer)
	slices.Reverse(shorter)
	var branching []string
	for n := 1; n < size; n++ {
		branching = append(branching, whole[:size-n]+"#"+fmt.Sprint(n))
	}
	for name, texts := range map[string][]string{"longer": longer, "shorter": shorter, "branching": branching} {
		for _, ids := range []int{1, 3, 12} {
			tr, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			tr.Insert("m", whole, "whole")
			for i, text := range texts {
				tr.Insert("m", text, fmt.Sprint("target ", i%ids))
				if i%100 == 0 {
					tr.Match("m", whole, []string{"whole"}, nil)
				}
			}
			tr.verify(t)
			// A path that no Match or Insert passed may be longer until one does.
			for i := range size {
				tr.Match("m", whole, []string{"whole"}, nil)
				if tr.nodesAlong(whole) <= maxPath {
					break
				}
				tr.Insert("m", fmt.Sprint("another ", i%9), "another")
			}
			if n := tr.nodesAlong(whole); n > maxPath || n < maxPath/2 {
				t.Errorf("%s, %d targets: %d nodes along one text", name, ids, n)
			}
			if got := tr.Match("m", whole, []string{"whole"}, nil); got[0] != size {
				t.Errorf("%s, %d targets: the whole text is held up to %d", name, ids, got[0])
			}
			tr.verify(t)
			if tr.Stats().Evicted == 0 {
				t.Errorf("%s: nothing was evicted", name)
			}
		}
	}
}
