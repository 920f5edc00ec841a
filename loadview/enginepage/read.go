package enginepage

import (
	"cmp"
	"math"
	"strconv"

	"github.com/warmroute/router/internal/samples"
)

// families are the samples of a page by their names.
type families map[string][]samples.Sample

// rank returns the samples of d that are of one rank, false if there are none. A
// counter that is kept for all ranks together is each one's. A page without
// ranks has one, 0.
func (f families) rank(d *Dialect, rank string) (families, bool) {
	if rank == "" {
		return f, true
	}
	apart, found := false, false
	out := families{}
	for _, s := range d.all() {
		all := f[s.Name]
		if all == nil || out[s.Name] != nil {
			continue
		}
		own, shared := []samples.Sample{}, []samples.Sample{}
		for _, m := range all {
			switch l := m.Label(d.Rank); {
			case d.Rank == "" || l == "":
				shared = append(shared, m)
			case l == rank:
				own = append(own, m)
			}
		}
		switch {
		case len(own) > 0:
			apart, found = true, true
		case len(shared) < len(all):
			apart = true
		case s.Name == d.Total.Name:
			own = shared
		}
		out[s.Name] = own
	}
	if !apart {
		return f, rank == "0"
	}
	return out, found
}

// read fills in st by the names of d.
func (f families) read(d *Dialect, st *State) error {
	for _, m := range f[d.Total.Name] {
		st.Total = max(st.Total, 0) + m.Value
	}
	for _, s := range d.KVUsage {
		if f[s.Name] != nil {
			st.usage(f.values(d, s))
			break
		}
	}
	for _, v := range f.values(d, d.Awake) {
		st.Asleep = st.Asleep || v == 0
	}
	running, err := sum(f.values(d, d.Running))
	if err != nil {
		return err
	}
	waiting := 0.0
	for i, s := range d.Waiting {
		vs := f.values(d, s)
		if i > 0 && len(vs) == 0 {
			continue
		}
		w, err := sum(vs)
		if err != nil {
			return err
		}
		waiting += w
	}
	st.Running, st.Waiting = int(math.Round(running)), int(math.Round(min(waiting, maxRequests)))
	return nil
}

// values returns the values of s that count.
func (f families) values(d *Dialect, s Series) []float64 {
	var vs []float64
	best := map[string]*samples.Sample{} // by rank, if there are shards
	var ranks []string
	all := f[s.Name]
	for i := range all {
		m := &all[i]
		if !s.has(m) {
			continue
		}
		if d.Shards == nil {
			vs = append(vs, m.Value)
			continue
		}
		rank := m.Label(d.Rank)
		old, ok := best[rank]
		if !ok {
			ranks = append(ranks, rank)
		}
		if !ok || before(d.Shards, m, old) {
			best[rank] = m
		}
	}
	for _, rank := range ranks {
		vs = append(vs, best[rank].Value)
	}
	return vs
}

// has reports whether m has the labels of s.
func (s *Series) has(m *samples.Sample) bool {
	for name, want := range s.Labels {
		if m.Label(name) != want {
			return false
		}
	}
	return true
}

// before reports whether a counts rather than b, both of one rank. If they are of
// the same shard the greater one does.
func before(shards []string, a, b *samples.Sample) bool {
	for _, label := range shards {
		if c := cmp.Compare(number(a.Label(label)), number(b.Label(label))); c != 0 {
			return c < 0
		}
	}
	return a.Value > b.Value
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// maxRequests bounds the requests that a page may report.
const maxRequests = 1 << 30

func sum(vs []float64) (float64, error) {
	if len(vs) == 0 {
		return 0, ErrNoLoad
	}
	s := 0.0
	for _, v := range vs {
		if !(v >= 0) || math.IsInf(v, 0) {
			return 0, ErrBadCount
		}
		s += v
	}
	return min(s, maxRequests), nil
}

// usage notes the greatest share and the mean, unless one of vs is no share.
func (st *State) usage(vs []float64) {
	s, most := 0.0, 0.0
	for _, v := range vs {
		if !(v >= 0) || math.IsInf(v, 0) {
			return
		}
		v = min(v, 1)
		s += v
		most = max(most, v)
	}
	if len(vs) > 0 {
		st.KVUsage, st.KVUsageMean = most, s/float64(len(vs))
	}
}
