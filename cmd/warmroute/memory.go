package main

import (
	"os"
	"reflect"
	"runtime/debug"

	"github.com/warmroute/router/config/file"
)

const (
	// baseBytes is the memory of a gateway that serves nothing and remembers nothing.
	baseBytes = 64 << 20
	// requestBytes is the memory of a request that no account has: the stacks of its goroutines, the buffers of its two
	// connections, its headers.
	requestBytes = 64 << 10
	// blockBytes is the memory of a block in the index of KV events, presumedBytes that of the
	// prompts that a strategy with an index presumes to be cached.
	blockBytes    = 36
	presumedBytes = 32 << 20
)

// baseMemory returns the memory that a gateway of f takes at most in addition to max_memory.
func baseMemory(f *file.File, maxRequests int) int64 {
	sum := int64(baseBytes) + int64(maxRequests)*requestBytes
	for i := range f.Routes {
		r := &f.Routes[i]
		text := textBytes(reflect.ValueOf(r.Settings[r.Strategy]))
		sum += text + text/4
	}
	presumed := int64(0)
	for i := range f.Providers {
		if p := &f.Providers[i]; p.KVEvents != nil {
			sum += int64(p.KVEvents.MaxBlocks) * int64(max(p.Ranks, 1)) * blockBytes
			presumed = presumedBytes
		}
	}
	return sum + presumed
}

// textBytes returns the sum of the bounds on text in a strategy's settings.
func textBytes(v reflect.Value) int64 {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return 0
	}
	if f := v.FieldByName("MaxBytes"); f.IsValid() && f.CanInt() {
		return f.Int()
	}
	return 0
}

// softLimit sets the Go runtime's soft limit of memory by the file in place, unless the environment has one: the
// collector then works harder before the process takes more than max_memory and the rest of the gateway.
func (s *service) softLimit() {
	if s.maxRequests == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	f := s.gateway.File()
	base := baseMemory(f, s.maxRequests)
	soft := f.MaxMemory + f.MaxMemory/8 + base
	if s.soft == soft {
		return
	}
	s.soft = soft
	debug.SetMemoryLimit(soft)
	s.log.Info("memory", "max_memory", f.MaxMemory, "base", base, "soft_limit", soft)
}
