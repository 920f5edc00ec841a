package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// series reads f each second for n seconds, with noise.
func series(n int, noise float64, f func(i int) float64) []sample {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(1000, 0)
	var s []sample
	for i := range n {
		s = append(s, sample{start.Add(time.Duration(i) * time.Second), f(i) + noise*random.NormFloat64()})
	}
	return s
}

func TestFlat(t *testing.T) {
	warm := time.Unix(1000+100, 0)
	for _, c := range []struct {
		name  string
		n     int
		noise float64
		f     func(i int) float64
		flat  bool
	}{
		{"constant", 400, 0, func(int) float64 { return 50 }, true},
		{"noisy", 400, 10, func(int) float64 { return 50 }, true},
		{"spikes", 400, 1, func(i int) float64 { return 50 + float64(i%10/9)*100 }, true},
		{"grows while it warms up", 400, 1, func(i int) float64 { return min(50, float64(i)/2) }, true},
		{"shrinks", 400, 1, func(i int) float64 { return 100 - float64(i)/8 }, true},
		{"leaks", 400, 1, func(i int) float64 { return 50 + float64(i)/10 }, false},
		{"leaks beneath noise", 400, 10, func(i int) float64 { return 50 + float64(i)/10 }, false},
		{"a step", 400, 1, func(i int) float64 { return 50 + 20*float64(i/250) }, false},
		{"begins to leak late", 400, 1, func(i int) float64 { return 50 + float64(max(0, i-300))/2 }, false},
		{"too few", 107, 0, func(int) float64 { return 50 }, false},
		{"none", 0, 0, nil, false},
	} {
		first, last, err := flat(series(c.n, c.noise, c.f), warm, limit{share: 0.1, fixed: 4})
		if (err == nil) != c.flat {
			t.Errorf("%s: %v to %v: %v", c.name, first, last, err)
		}
	}
}

// TestReports reads what a Go program under GODEBUG writes, with a log in between.
func TestReports(t *testing.T) {
	var r reports
	now := time.Unix(1, 0)
	for _, line := range strings.SplitAfter(`level=INFO msg=listening
SCHED 2002ms: gomaxprocs=2 idleprocs=1 threads=7 spinningthreads=0 needspinning=0 idlethreads=3 runqueue=0 gcwaiting=false
  P0: status=0 schedtick=9 syscalltick=4 m=nil runqsize=0 gfreecnt=0 timerslen=0
  M2: p=nil curg=nil mallocing=0 throwing=0 preemptoff= locks=0 dying=0 spinning=false blocked=true lockedg=nil
  G1: status=4(IO wait) m=nil lockedm=nil
  G2: status=4(force gc (idle)) m=nil lockedm=nil
  G3: status=6() m=nil lockedm=nil
  G41: status=2() m=3 lockedm=nil
gc 7 @1.234s 2%: 0.03+1.2+0.01 ms clock, 0.1+0.2/0.4/0.3+0.01 ms cpu, 11->12->5 MB, 12 MB goal, 0 MB stacks, 0 MB globals, 2 P
gc 8 @1.5 this line was cut into by another
level=WARN path=/v1/c0nf1dent1al
level=WARN msg="gc 9 @1.234s 11->12->99 MB, no collection"
SCHED 4004ms: gomaxprocs=2
  G1: status=4(IO wait) m=nil lockedm=nil
`, "\n") {
		r.read(line, now)
	}
	want := []sample{{now, 5 << 20}}
	if d := cmp.Diff(want, r.heap, cmp.AllowUnexported(sample{})); d != "" {
		t.Error("heap:", d)
	}
	want = []sample{{now, 3}} // the second list is not complete
	if d := cmp.Diff(want, r.goroutines, cmp.AllowUnexported(sample{})); d != "" {
		t.Error("goroutines:", d)
	}
	if d := cmp.Diff([]string{"level=WARN path=/v1/c0nf1dent1al\n"}, r.told); d != "" {
		t.Error("secrets:", d)
	}
	if said := strings.Join(r.said, ""); !strings.HasPrefix(said, "level=INFO msg=listening\n") ||
		strings.Contains(said, "SCHED") {
		t.Errorf("it said %q", said)
	}
}

func TestCheck(t *testing.T) {
	good := soak{length: time.Minute, users: 1, replicas: 3, row: time.Second}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*soak){
		"-for": func(s *soak) { s.length = time.Second }, "-users": func(s *soak) { s.users = 0 },
		"-replicas": func(s *soak) { s.replicas = 2 }, "-think": func(s *soak) { s.think = -1 },
		"-row": func(s *soak) { s.row = 0 },
	} {
		s := good
		spoil(&s)
		if err := s.check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestQuiet: readings during an attack, and shortly after it, are left out.
func TestQuiet(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	h := &hostile{changes: []time.Time{at(10), at(20), at(30)}}
	var all []sample
	for i := range 40 {
		all = append(all, sample{at: at(i), v: float64(i)})
	}
	var got []int
	for _, s := range h.quiet(all) {
		got = append(got, int(s.v))
	}
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 23, 24, 25, 26, 27, 28, 29}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len((*hostile)(nil).quiet(all)) != len(all) {
		t.Error("readings without hostile clients are left out")
	}
}
