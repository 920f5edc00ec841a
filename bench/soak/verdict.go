package main

import (
	"errors"
	"fmt"
	"io"
)

// verdict collects the findings.
type verdict struct {
	out    io.Writer
	wrongs int
}

func (v *verdict) check(what string, err error) {
	if err != nil {
		v.wrongs++
		fmt.Fprintf(v.out, "NOT OK  %s: %v\n", what, err)
		return
	}
	fmt.Fprintf(v.out, "ok      %s\n", what)
}

func (v *verdict) note(what string) { fmt.Fprintf(v.out, "        %s\n", what) }

func (v *verdict) good() bool { return v.wrongs == 0 }

func (v *verdict) conclude() {
	if v.good() {
		fmt.Fprintln(v.out, "\nit stays as it was")
		return
	}
	fmt.Fprintf(v.out, "\nit does NOT stay as it was: %d of the above\n", v.wrongs)
}

func unless(bad bool, why string) error {
	if bad {
		return errors.New(why)
	}
	return nil
}
