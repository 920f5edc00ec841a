package routertest

import "fmt"

// recorder is a reporter that keeps what is reported.
type recorder struct{ failures []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// Failures checks one law, whether or not the strategy has the part for it, and
// returns the failures.
func Failures(name Law, newStrategy Factory) []string {
	r := &recorder{}
	for _, l := range laws {
		if l.name == name {
			l.run(r, newStrategy, Options{})
		}
	}
	return r.failures
}

func (o Options) Check() error { return o.check() }
