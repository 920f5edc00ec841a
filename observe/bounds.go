package observe

import (
	"errors"
	"fmt"

	"github.com/warmroute/router"
)

// Bounds checks the bounds of a package's Config and collects its errors.
type Bounds struct {
	Package string // its name, with which each error begins
	errs    []error
}

// Check adds a *router.ConfigError if n, the value of a field, is negative.
func (b *Bounds) Check(field string, n int) {
	if n < 0 {
		e := &router.ConfigError{Field: field, Value: n, Allowed: "0 or more"}
		b.errs = append(b.errs, fmt.Errorf("%s: %w", b.Package, e))
	}
}

// Err returns the errors, joined; nil if there are none.
func (b *Bounds) Err() error { return errors.Join(b.errs...) }
