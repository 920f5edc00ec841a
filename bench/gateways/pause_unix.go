//go:build unix

package main

import (
	"os"
	"syscall"
)

// pause has a process stand still, or go on.
func pause(p *os.Process, still bool) error {
	if still {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}
