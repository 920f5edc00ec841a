// Package forgetlog knows whether a target was forgotten since a request was sent, so that the end of the request
// teaches nothing about the target that has the same ID now.
package forgetlog

import "strings"

// maxIDs bounds the IDs with a remembered last Forget.
const maxIDs = 4096

// Log remembers when each ID was forgotten last. The zero Log is empty. The caller's lock guards it.
type Log struct {
	count uint64            // calls of Forget
	last  map[string]uint64 // count after the last Forget of each ID
	floor uint64            // count when last was emptied
}

// Mark returns the present moment, for Forgotten.
func (l *Log) Mark() uint64 { return l.count }

// Forget notes that id is forgotten now.
func (l *Log) Forget(id string) {
	l.count++
	if len(l.last) >= maxIDs {
		clear(l.last)
		l.floor = l.count
	}
	if l.last == nil {
		l.last = make(map[string]uint64)
	}
	l.last[strings.Clone(id)] = l.count
}

// Forgotten reports whether id was forgotten after mark, or may have been: the oldest
// moments are not distinguished.
func (l *Log) Forgotten(id string, mark uint64) bool {
	return mark < l.floor || l.last[id] > mark
}
