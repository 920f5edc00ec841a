// Package configerr collects the errors of a Config: one *router.ConfigError for
// each field with a value that is not allowed, all joined.
package configerr

import (
	"errors"
	"fmt"

	"github.com/warmroute/router"
	"github.com/warmroute/router/trie"
)

// List collects the errors of one Config. Its zero value is empty and names no
// package.
type List struct {
	// Package is the name that each error begins with.
	Package string
	errs    []error
}

// Check adds a *router.ConfigError unless ok is true. The allowed text ends the
// sentence "it must be …".
func (l *List) Check(ok bool, field string, value any, allowed string) {
	if !ok {
		l.Add(&router.ConfigError{Field: field, Value: value, Allowed: allowed})
	}
}

// Add adds err, and each error of a joined one by itself. A *trie.ConfigError is
// added as a *router.ConfigError. A nil err adds nothing.
func (l *List) Add(err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			l.Add(e)
		}
		return
	}
	var t *trie.ConfigError
	if errors.As(err, &t) {
		err = &router.ConfigError{Field: t.Field, Value: t.Value, Allowed: t.Allowed, Err: t.Err}
	}
	if l.Package != "" {
		err = fmt.Errorf("%s: %w", l.Package, err)
	}
	l.errs = append(l.errs, err)
}

// Err returns all errors that were added, joined, or nil if there are none.
func (l *List) Err() error { return errors.Join(l.errs...) }

// In returns err with at and a dot before the field of each *router.ConfigError in
// it, joined or not. The errors of a Config within another one get their place so.
func In(at string, err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, In(at, e))
		}
		return errors.Join(errs...)
	}
	var c *router.ConfigError
	if !errors.As(err, &c) {
		return &router.ConfigError{Field: at, Err: err}
	}
	in := *c
	in.Field = at + "." + c.Field
	return &in
}
