package routertest

import "fmt"

// recorder is a reporter that keeps what is reported.
type recorder struct{ failures []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// Failures runs every law that applies and returns the failures by law.
func Failures(newStrategy New, o Options) map[Law][]string {
	failed := make(map[Law][]string)
	for _, l := range laws {
		r := &recorder{}
		k := newKit(r, newStrategy, o)
		if l.needs != nil && !l.needs(newStrategy(k.rand(0))) {
			continue
		}
		l.run(r, newStrategy, o)
		if len(r.failures) > 0 {
			failed[l.name] = r.failures
		}
	}
	return failed
}

func (o Options) Check() error { return o.check() }
