package observe

import (
	"errors"
	"fmt"
)

// Bounds reads the bounds of a package's Config and collects what is wrong with
// them.
type Bounds struct {
	Package string
	errs    []error
}

// Of returns n, or def where n is 0. A negative n is an error that names the field.
func (b *Bounds) Of(field string, n, def int) int {
	if n < 0 {
		b.errs = append(b.errs, fmt.Errorf("%s: Config.%s is %d; it must not be negative", b.Package, field, n))
	}
	if n == 0 {
		return def
	}
	return n
}

// Err joins what was wrong; nil: nothing was.
func (b *Bounds) Err() error { return errors.Join(b.errs...) }
