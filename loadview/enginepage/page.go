// Package enginepage reads the metrics pages of inference engines: how many
// requests an engine runs, how many wait there and how full its KV cache is.
//
// Every engine has its own names for that. They are a table of [Dialect] values, to
// which a program adds its own engine's (loadview's Scrape.Dialects):
//
//	enginepage.Dialect{
//		Name:    "ours",
//		Running: enginepage.Series{Name: "ours_running"},
//		Waiting: []enginepage.Series{{Name: "ours_waiting"}},
//	}
package enginepage

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/warmroute/router/internal/samples"
)

const (
	startName = "process_start_time_seconds"
	maxWanted = 1 << 20 // bytes of the samples that are read
)

// The errors of a page, found by errors.Is.
var (
	ErrTooLong  = errors.New("the page is too long")
	ErrTooMany  = fmt.Errorf("the page has more than %d bytes of the samples that are read", maxWanted)
	ErrNoLoad   = errors.New("the page reports neither the running nor the waiting requests")
	ErrNotText  = errors.New("the page is JSON, not Prometheus text; trtllm-serve has that at /prometheus/metrics")
	ErrNoRank   = errors.New("the page has no such data-parallel rank")
	ErrBadCount = errors.New("the running or the waiting requests are not a number of requests")
)

// State is an engine's state as one page reports it.
type State struct {
	// Dialect is the name of the dialect of the page; "": it is in none that is known.
	Dialect string
	// Running are the requests in the batch, Waiting all others that the engine
	// has. -1: the page does not report it.
	Running, Waiting int
	// KVUsage is the share, 0 to 1, of the KV cache that running requests occupy (not
	// the part that is merely cached): of the fullest engine and on average. -1: the
	// page does not report it.
	KVUsage, KVUsageMean float64
	// Asleep reports that an engine of the page sleeps.
	Asleep bool
	// Start is when the server's process began, in seconds since 1970; -1: the page
	// does not report it.
	Start float64
	// Total is the sum of a counter that only a restart sets back; -1: the page has
	// none.
	Total float64
}

func unknown() State {
	return State{Running: -1, Waiting: -1, KVUsage: -1, KVUsageMean: -1, Start: -1, Total: -1}
}

// Table is a list of dialects, ready to read pages with. It is safe for concurrent
// use. Make one with NewTable.
type Table struct {
	dialects []Dialect
	wanted   map[string]bool
}

// NewTable returns the table of ds, in this order: if a page fits several, the
// first one of which it has the load counts. It keeps ds.
func NewTable(ds []Dialect) *Table {
	t := &Table{dialects: ds, wanted: map[string]bool{startName: true}}
	for i := range ds {
		for _, s := range ds[i].all() {
			t.wanted[s.Name] = true
		}
	}
	return t
}

// Page is the samples of one page that a Table has a name for.
type Page struct {
	table    *Table
	families families
}

// Reader reads pages and keeps its buffer from one page to the next. The zero
// Reader is ready. It is for one goroutine at a time.
type Reader struct{ samples samples.Reader }

// Read reads one page of at most limit bytes.
func (r *Reader) Read(body io.Reader, t *Table, limit int64) (Page, error) {
	all, first, err := r.samples.Read(body, samples.Page{
		MaxBytes: limit, MaxWanted: maxWanted,
		Wanted: func(name []byte) bool { return t.wanted[string(name)] },
	})
	switch {
	case errors.Is(err, samples.ErrPage):
		err = ErrTooLong
	case errors.Is(err, samples.ErrWanted):
		err = ErrTooMany
	case err == nil && len(all) == 0 && (first == '[' || first == '{'):
		err = ErrNotText
	}
	if err != nil {
		return Page{}, err
	}
	f := families{}
	for _, s := range all {
		f[s.Name] = append(f[s.Name], s)
	}
	return Page{t, f}, nil
}

// State returns the state of the rank with this number, "" for all ranks of the
// page together, by the first dialect of which the page has the load. A page without
// the load is an error; the rest of the State is valid all the same.
func (p Page) State(rank string) (State, error) {
	out := unknown()
	err := ErrNoLoad
	for i := range p.table.dialects {
		d := &p.table.dialects[i]
		if !slices.ContainsFunc(d.all(), func(s Series) bool { return p.families[s.Name] != nil }) {
			continue
		}
		of, ok := p.families.rank(d, rank)
		if !ok {
			if out.Dialect == "" {
				err = fmt.Errorf("%w as %q", ErrNoRank, rank)
			}
			continue
		}
		st := unknown()
		st.Dialect = d.Name
		e := of.read(d, &st)
		if out.Dialect == "" || e == nil {
			out, err = st, e
		}
		if e == nil {
			break
		}
	}
	if f := p.families[startName]; len(f) == 1 && f[0].Value > 0 {
		out.Start = f[0].Value
	}
	return out, err
}
