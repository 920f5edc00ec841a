//go:build !unix

package main

import (
	"errors"
	"os"
)

// pause has a process stand still, or go on.
func pause(*os.Process, bool) error { return errors.ErrUnsupported }
