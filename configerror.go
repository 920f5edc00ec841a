package router

import "fmt"

// ConfigError reports a field of a Config with a value that is not allowed. The
// packages of this module return it by pointer, wrapped with the name of the
// package and joined if several fields are wrong; errors.As finds the first,
// and a program that knows the field can say where the user wrote it.
type ConfigError struct {
	// Field is the name of the field in its Go struct. A field of a struct within
	// the Config has a dotted path, an element of a slice an index:
	// "Providers[2].ID".
	Field string
	// Value is the value that is not allowed. It is nil if the field is a
	// secret.
	Value any
	// Allowed says which values are, as the end of "it must be …".
	Allowed string
	// Err is the reason if another package gave one; nil: Allowed says it.
	Err error
}

// Error describes e in one line.
func (e *ConfigError) Error() string {
	switch {
	case e.Err != nil:
		return e.Field + ": " + e.Err.Error()
	case e.Value == nil:
		return fmt.Sprintf("%s must be %s", e.Field, e.Allowed)
	}
	format := "%s is %v; it must be %s"
	if _, ok := e.Value.(string); ok {
		format = "%s is %q; it must be %s"
	}
	return fmt.Sprintf(format, e.Field, e.Value, e.Allowed)
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }
