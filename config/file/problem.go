package file

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/warmroute/router/internal/nearest"
)

// Problem is something that is wrong with a file, or, among the Warnings of a [File],
// something that is allowed and most likely not meant.
type Problem struct {
	// File is the file's name, "" if it came without one.
	File string
	// Line and Column are its place, counted from 1; the column counts characters.
	// Both are 0 if it is at no single place.
	Line, Column int
	// Key is the path to it, such as routes[0].targets[1].weight, "" for the file as
	// a whole.
	Key string
	// Value is the value that the file has there. It is nil if there is none, if the
	// key is the problem, or if it may be a secret.
	Value any
	// Allowed says which values are, as the end of "it must be …"; "" if no such
	// sentence can be made.
	Allowed string
	// Message describes the problem in one line, without its place and key.
	Message string
	// Err is the reason if another package gave one, such as a *router.ConfigError.
	Err error
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

// Error returns String with the file's name before it.
func (p *Problem) Error() string {
	if p.File == "" {
		return "config: " + p.String()
	}
	return "config: " + p.File + ":" + p.String()
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }

// Error holds all that is wrong with a file. It is returned by pointer; errors.As
// finds its first *Problem.
type Error struct {
	// File is the file's name, "" if it came without one.
	File string
	// Problems are in the order of the file. There is at least one.
	Problems []Problem
}

// Error returns the problems, one in a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i := range e.Problems {
		lines[i] = e.Problems[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each of the Problems, as a *Problem.
func (e *Error) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i := range e.Problems {
		errs[i] = &e.Problems[i]
	}
	return errs
}

func sortProblems(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Key, b.Key))
	})
	return ps
}

// suggest returns the end of a message about an unknown name: the nearest known one,
// or all of them if none is near.
func suggest(name string, known []string) string {
	if best := nearest.Of(name, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	known = slices.Sorted(slices.Values(known))
	return "known are " + strings.Join(known, ", ")
}

// oneOf lists names as the end of "it must be …".
func oneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range slices.Sorted(slices.Values(names)) {
		quoted[i] = strconv.Quote(n)
	}
	return "one of " + strings.Join(quoted, ", ")
}
