package rivals

import (
	"slices"
	"testing"
	"time"
)

func offered(h Health, now time.Duration, n int) (in []int) {
	out := make([]bool, n)
	h.Offer(now, out)
	for i, o := range out {
		if !o {
			in = append(in, i)
		}
	}
	return in
}

// The rules with their published numbers, step by step.
func TestHealth(t *testing.T) {
	expect := func(name string, h Health, now time.Duration, n int, want ...int) {
		t.Helper()
		if got := offered(h, now, n); !slices.Equal(got, want) {
			t.Errorf("%s at %v: %v are offered, want %v", name, now, got, want)
		}
	}
	o := NewOutliers(4)
	for range 4 {
		o.Ended(0, 1, 503)
	}
	o.Ended(0, 1, 429) // no 5xx: the row ends
	for range 4 {
		o.Ended(0, 1, 503)
	}
	expect("outliers", o, time.Second, 4, 0, 1, 2, 3)
	o.Ended(time.Second, 1, 0)
	for range 9 {
		o.Ended(time.Second, 2, 500)
	}
	expect("outliers", o, 2*time.Second, 4, 0, 2, 3) // one at a time
	expect("outliers", o, 30*time.Second, 4, 0, 2, 3)
	expect("outliers", o, 40*time.Second, 4, 0, 1, 2, 3)
	o = NewOutliers(6)
	for i := range 6 {
		for k := range 100 {
			status := 200
			if i == 5 && k%2 == 0 {
				status = 500
			}
			o.Ended(0, i, status)
		}
	}
	expect("success rate", o, 10*time.Second, 6, 0, 1, 2, 3, 4)

	b := NewBreakers(2)
	for range 30 {
		b.Ended(0, 0, 429)
	}
	for range 9 {
		b.Ended(0, 1, 503)
	}
	expect("breakers", b, 0, 2, 0, 1)
	b.Ended(0, 1, 0)
	expect("breakers", b, 59*time.Second, 2, 0)
	expect("breakers", b, 60*time.Second, 2, 0, 1)
	b.Ended(60*time.Second, 1, 200)
	b.Ended(60*time.Second, 1, 503)
	expect("breakers", b, 61*time.Second, 2, 0)
	expect("breakers", b, 120*time.Second, 2, 0, 1)
	for range 3 {
		b.Ended(120*time.Second, 1, 200)
	}
	b.Ended(120*time.Second, 1, 503)
	expect("breakers", b, 120*time.Second, 2, 0, 1)

	waiting := []int{4, 5}
	s := NewSaturation(2, func(i int) int { return waiting[i] })
	expect("saturation", s, 0, 2, 0)
	waiting[1] = 0
	expect("saturation", s, 49*time.Millisecond, 2, 0)
	expect("saturation", s, 50*time.Millisecond, 2, 0, 1)
	waiting[0], waiting[1] = 9, 9
	expect("saturation", s, time.Second, 2, 0, 1)
}
