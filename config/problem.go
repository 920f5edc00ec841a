package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a file, or, among the Warnings of a
// [File], one that is allowed and most likely not meant.
type Problem struct {
	// Line and Column say where, from 1; the column counts characters. 0: it is
	// not at one place.
	Line, Column int
	// Key is the path to it, such as routes[0].targets[1].weight.
	Key     string
	Message string
}

// String returns the problem in one line, "line:column: key: message".
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Error is all that is wrong with a file. It is returned by pointer.
type Error struct {
	// Name is the file's, "" where it came without one.
	Name string
	// Problems are in the order of the file.
	Problems []Problem
}

// Error returns the problems, one in a line.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("config: ")
		if e.Name != "" {
			b.WriteString(e.Name + ":")
		}
		b.WriteString(p.String())
	}
	return b.String()
}

func sortProblems(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Key, b.Key))
	})
	return ps
}

// suggest returns what a message about an unknown name ends with: the nearest
// known one, or all of them where none is near.
func suggest(name string, known []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	known = slices.Sorted(slices.Values(known))
	return "known are " + strings.Join(known, ", ")
}

// distance returns the edits between a and b: one character more, less, other or
// two exchanged. Names longer than any that is known are not looked at.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var before, last, row [65]int
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
