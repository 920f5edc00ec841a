package main

import (
	"fmt"
	"slices"
	"time"
)

// sample is one reading.
type sample struct {
	at time.Time
	v  float64
}

// median of the readings; 0 if there are none.
func median(s []sample) float64 {
	if len(s) == 0 {
		return 0
	}
	v := make([]float64, len(s))
	for i := range s {
		v[i] = s[i].v
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// limit is the growth with which a series still counts as flat: a share of its
// value, and a fixed amount for the noise of one reading.
type limit struct {
	share, fixed float64
}

// minSamples is how many readings it takes to judge a series.
const minSamples = 8

// flat judges the readings after the first part of a run, the warm-up, which ends at
// from: the median of the last third may exceed that of the first third by no more
// than the limit. A slow leak of rate r shows as two thirds of r times the length, so
// a longer run finds a slower one. Medians, because single readings depend on the
// requests in flight.
func flat(all []sample, from time.Time, l limit) (first, last float64, err error) {
	s := slices.DeleteFunc(slices.Clone(all), func(s sample) bool { return s.at.Before(from) })
	if len(s) < minSamples {
		return 0, 0, fmt.Errorf("only %d readings, of which nothing can be said", len(s))
	}
	begin, end := s[0].at, s[len(s)-1].at
	third := end.Sub(begin) / 3
	var a, b []sample
	for _, x := range s {
		switch {
		case !x.at.After(begin.Add(third)):
			a = append(a, x)
		case !x.at.Before(end.Add(-third)):
			b = append(b, x)
		}
	}
	first, last = median(a), median(b)
	if grown := last - first; grown > first*l.share+l.fixed {
		return first, last, fmt.Errorf("grew from %.4g to %.4g", first, last)
	}
	return first, last, nil
}
