//go:build !unix

package vllmtest_test

import (
	"testing"
	"time"
)

func cpuTime(b *testing.B) time.Duration {
	b.Skip("the process's CPU time is read on Unix only")
	return 0
}
