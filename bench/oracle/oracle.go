// Package oracle computes the exact part of a text that was seen before in the
// simplest way: it keeps every text. The benchmarks check a trie's answers and
// the limits of a fleet's caches with it.
package oracle

import "slices"

// Texts is a set of texts. The zero Texts is empty. It keeps the strings that it
// is given and is not safe for concurrent use.
type Texts struct {
	sorted []string
}

// Add adds text.
func (t *Texts) Add(text string) {
	i, found := slices.BinarySearch(t.sorted, text)
	if !found {
		t.sorted = slices.Insert(t.sorted, i, text)
	}
}

// Len returns the number of different texts.
func (t *Texts) Len() int { return len(t.sorted) }

// Longest returns the number of leading bytes that text shares with the text of
// the set with which it shares most.
func (t *Texts) Longest(text string) int {
	// In sorted order, no text shares more with another one than its neighbours do.
	i, found := slices.BinarySearch(t.sorted, text)
	if found {
		return len(text)
	}
	n := 0
	if i > 0 {
		n = Common(t.sorted[i-1], text)
	}
	if i < len(t.sorted) {
		n = max(n, Common(t.sorted[i], text))
	}
	return n
}

// Common returns the number of leading bytes that a and b share.
func Common(a, b string) int {
	n := min(len(a), len(b))
	const step = 256
	i := 0
	for i+step <= n && a[i:i+step] == b[i:i+step] {
		i += step
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
