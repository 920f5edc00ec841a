package prompt

import "strconv"

// ErrorKind says what is wrong with a request. It is itself an error, so that
// errors.Is(err, prompt.Syntax) tells one kind from another.
type ErrorKind uint8

// The kinds of errors.
const (
	Syntax      ErrorKind = iota + 1 // the body is not JSON: nothing of its text is used
	Type                             // a field has a type it cannot have: it is left out, the rest is used
	TooDeep                          // nested deeper than MaxDepth: nothing of its text is used
	TooLarge                         // the body is over Parser.MaxBody: it was not read
	UnknownPath                      // no body kind is known for this path; only told to Parser.Unknown
	BadTokenIDs                      // the token-id header does not hold what ParseTokenIDs takes: it is left out
)

// Error returns the kind in words.
func (k ErrorKind) Error() string {
	switch k {
	case Syntax:
		return "malformed JSON"
	case Type:
		return "wrong type"
	case TooDeep:
		return "nested too deep"
	case TooLarge:
		return "body too large"
	case UnknownPath:
		return "unknown path"
	case BadTokenIDs:
		return "bad token ids"
	}
	return "error " + strconv.Itoa(int(k))
}

// Error is the error of every function of this package. It is returned by
// pointer and errors.Is its Kind. It never quotes the body.
type Error struct {
	Kind ErrorKind
	// Field is the field of the body ("messages[3]", "prompt") or the header
	// that is wrong; "" where it is the whole body.
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
