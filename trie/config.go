package trie

import (
	"errors"
	"fmt"
)

// Config bounds a Trie. The zero Config is the documented default.
type Config struct {
	// MaxNodes is the greatest number of nodes that one target may hold. A node
	// that several targets hold counts for each. 0 means 1,000,000.
	MaxNodes int
	// MaxBytes is the greatest number of bytes of text for all targets together;
	// a text that several prompts or targets share counts once. The slabs take
	// up to a quarter more while texts are added and evicted, and about 150
	// bytes for each node or prompt. Nodes and prompts are each at most MaxBytes
	// / 128, or 65,536 if that is more. A text longer than MaxBytes is not
	// recorded. 0 means 512 MiB.
	MaxBytes int
}

// WithDefaults returns c with the default in place of each field that is 0.
func (c Config) WithDefaults() Config {
	if c.MaxNodes == 0 {
		c.MaxNodes = 1_000_000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 512 << 20
	}
	return c
}

// check returns a *ConfigError for each field that is not allowed, joined.
func (c Config) check() error {
	var errs []error
	atLeast1 := func(field string, n int) {
		if n < 1 {
			errs = append(errs, fmt.Errorf("trie: %w",
				&ConfigError{Field: field, Value: n, Allowed: "at least 1, or 0 for the default"}))
		}
	}
	atLeast1("MaxNodes", c.MaxNodes)
	atLeast1("MaxBytes", c.MaxBytes)
	return errors.Join(errs...)
}

// ConfigError reports a field of a Config with a value that is not allowed. New
// returns it by pointer, wrapped with the name of the package. It is
// router.ConfigError without the import of package router.
type ConfigError struct {
	// Field is the name of the field of Config.
	Field string
	// Value is the value that is not allowed.
	Value any
	// Allowed says which values are, as the end of "it must be …".
	Allowed string
	// Err is the reason if another package gave one; nil: Allowed says it.
	Err error
}

// Error describes e in one line.
func (e *ConfigError) Error() string {
	if e.Err != nil {
		return e.Field + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s is %v; it must be %s", e.Field, e.Value, e.Allowed)
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }
