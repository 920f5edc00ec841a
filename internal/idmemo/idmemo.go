// Package idmemo remembers the resolved form of lists of target IDs, so that a
// repeated list is not looked up ID by ID.
package idmemo

import (
	"slices"
	"sync/atomic"
	"unsafe"
)

// size is the number of lists that a Memo keeps: a process has few endpoints, and
// each offers the same list until its fleet changes.
const size = 8

// Memo keeps one V for each of the last few lists of IDs. The zero Memo is empty.
// It is safe for concurrent use and takes no lock.
type Memo[V any] struct {
	entries [size]atomic.Pointer[entry[V]]
	next    atomic.Uint32 // the entry to replace
}

type entry[V any] struct {
	generation uint64
	ids        []string // a copy: it keeps the strings alive, so equal headers mean equal strings
	value      V
}

// Get returns the value that Put was given for the same IDs in the same order at
// the same generation, or nil. A list of the same string values as before is
// recognised by the strings' headers alone. It does not allocate.
func (m *Memo[V]) Get(generation uint64, ids []string) *V {
	for i := range m.entries {
		if e := m.entries[i].Load(); e != nil && e.generation == generation && sameHeaders(e.ids, ids) {
			return &e.value
		}
	}
	for i := range m.entries { // equal strings at other addresses
		if e := m.entries[i].Load(); e != nil && e.generation == generation && slices.Equal(e.ids, ids) {
			return &e.value
		}
	}
	return nil
}

// Put keeps v for ids and generation, in the place of the list that was put first,
// and returns its location. The caller must not change *v after that. The
// generation is to change when v would.
func (m *Memo[V]) Put(generation uint64, ids []string, v V) *V {
	e := &entry[V]{generation: generation, ids: slices.Clone(ids), value: v}
	m.entries[(m.next.Add(1)-1)%size].Store(e)
	return &e.value
}

// sameHeaders compares the addresses and lengths of strings.
func sameHeaders(a, b []string) bool {
	return len(a) == len(b) && headers(a) == headers(b)
}

// headers returns the headers of the strings in s as bytes, without a copy.
func headers(s []string) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof("")))
}
