package prompt

import (
	"strconv"

	"github.com/warmroute/router/internal/jsonscan"
)

// ErrorKind is the kind of an error in a request. It is itself an error, so that
// errors.Is(err, prompt.ErrSyntax) distinguishes one kind from another.
type ErrorKind uint8

// The kinds of errors.
const (
	ErrSyntax      ErrorKind = iota + 1 // the body is not JSON: nothing of its text is used
	ErrType                             // a field has a type it cannot have: it is left out, the rest is used
	ErrTooDeep                          // nested deeper than MaxDepth: nothing of its text is used
	ErrTooLarge                         // the body is over Parser.MaxBody: it was not read
	ErrUnknownPath                      // no API is known for this path; only Parser.Unknown gets it
	ErrBadTokenIDs                      // the token-id header is nothing that ParseTokenIDs reads: it is left out
)

// Error returns the kind in words.
func (k ErrorKind) Error() string {
	switch k {
	case ErrSyntax:
		return "malformed JSON"
	case ErrType:
		return "wrong type"
	case ErrTooDeep:
		return "nested too deep"
	case ErrTooLarge:
		return "body too large"
	case ErrUnknownPath:
		return "unknown path"
	case ErrBadTokenIDs:
		return "bad token ids"
	}
	return "error " + strconv.Itoa(int(k))
}

// Error is the error of every function that reads a request. It is returned by
// pointer and errors.Is its Kind. It never quotes the body.
type Error struct {
	Kind ErrorKind
	// Field is the field of the body ("messages[3]", "prompt") or the header
	// that is wrong; "" if it is the whole body.
	Field string
	// Offset is the byte of the body, or of the header's value, at which it was
	// seen.
	Offset int
}

// Error describes e in one line.
func (e *Error) Error() string {
	s := "prompt: " + e.Kind.Error()
	if e.Field != "" {
		s += " in " + e.Field
	}
	return s + " at byte " + strconv.Itoa(e.Offset)
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// asError turns a possibly nil *Error into an error that is nil with it.
func asError(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// kindOf returns the kind of error that a fault of the JSON is.
func kindOf(f jsonscan.Fault) ErrorKind {
	if f == jsonscan.TooDeep {
		return ErrTooDeep
	}
	return ErrSyntax
}
