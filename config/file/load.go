// Package file reads the file that a gateway is configured by, and finds all that
// is wrong with it.
//
// The walk from a path to a [File] has one direction: [Read] gets the bytes, [Parse]
// makes positions and a tree of them (source.go), decodes the tree into a File
// (decode.go), checks it (check.go, check_routes.go), puts the defaults of other
// packages in place (defaults.go) and finds settings that are most likely not meant
// (warn.go). Every problem has its place in the file.
// Package config makes running routers of a File.
package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"syscall"
)

// Options are the names that a file may use and the abilities of its host. The zero
// Options work.
type Options struct {
	// Strategies are the caller's own, by the name that the file uses, in addition to
	// or in place of those that [Strategies] returns.
	Strategies map[string]Strategy
	// LookupEnv finds environment variables; nil means os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// KVEvents reports that the host reads KV events. If it does not, the file's
	// kv_events get a warning.
	KVEvents bool
	// Share reports that the host connects to a bus. If it does not, the file's share gets a
	// warning.
	Share bool
}

// Env returns the value of an environment variable, and whether it is set.
func (o Options) Env(name string) (string, bool) {
	if o.LookupEnv != nil {
		return o.LookupEnv(name)
	}
	return os.LookupEnv(name)
}

// Load reads and checks the file at path; see [Read] and [Parse].
func Load(path string, o Options) (*File, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, o)
}

// Read returns the contents of the file at path, at most one byte more than a file
// may have. A path that leads to something else than a regular file, such as a named
// pipe, is an error, and never blocks; symbolic links are followed.
func Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	data, err := readRegular(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return data, nil
}

func readRegular(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// Parse reads and checks the contents of a file, which errors and problems call name
// ("" is allowed). The error is an [*Error] with all problems, or one about o. The
// file's size, depth, number of keys and number of targets are bounded.
func Parse(name string, data []byte, o Options) (*File, error) {
	strategies, err := o.strategies()
	if err != nil {
		return nil, err
	}
	s, p := parse(data)
	if p != nil {
		p.File = name
		return nil, &Error{File: name, Problems: []Problem{*p}}
	}
	s.path = name
	d := &decoder{source: s, strategies: strategies, bad: make(map[string]bool)}
	f := &File{name: name, data: data}
	d.table("", s.tree, reflect.ValueOf(f).Elem())
	c := checker{decoder: d, file: f, options: o}
	c.check()
	if len(d.problems) > 0 {
		return nil, &Error{File: name, Problems: sortProblems(d.problems)}
	}
	f.setDefaults(strategies)
	c.warnings()
	f.Warnings = sortProblems(d.warnings)
	return f, nil
}
