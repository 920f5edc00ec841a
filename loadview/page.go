package loadview

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"
)

const (
	lineBuffer  = 64 << 10 // a longer line is none that is wanted
	maxSelected = 1 << 20
)

var (
	errTooLong  = errors.New("the page is longer than Scrape.MaxBody")
	errTooMany  = fmt.Errorf("the page has more than %d bytes of the series that are read", maxSelected)
	errNoLoad   = errors.New("the page says neither what is running nor what is waiting")
	errNotText  = errors.New("the page is JSON, not Prometheus text; trtllm-serve has that at /prometheus/metrics")
	errNoRank   = errors.New("the page has no such data-parallel rank")
	errBadCount = errors.New("what is running or waiting is not a number of requests")
)

// reader reads pages and keeps its buffers from one to the next. It is for one
// goroutine at a time.
type reader struct {
	buf      []byte
	selected bytes.Buffer
}

// read reads one page, of at most limit bytes.
//
// The text is parsed by Prometheus' own expfmt. Its parser takes 1.2 ms for a
// whole page of vLLM (50 KB, nearly all of it histograms), 12% of a core for 500
// members every 5 s; that of Prometheus' server, the other one that is well
// kept, takes 0.17 ms, but its module brings a hundred others. So the lines that
// are wanted are picked first, by their names alone, and only these are parsed:
// 0.05 ms.
func (r *reader) read(body io.Reader, limit int64) (families, error) {
	if r.buf == nil {
		r.buf = make([]byte, lineBuffer)
	}
	r.selected.Reset()
	if err := r.pick(body, limit); err != nil {
		return nil, err
	}
	// Without the TYPE lines everything is untyped, whatever the page calls it.
	parser := expfmt.NewTextParser(prom.UTF8Validation)
	f, err := parser.TextToMetricFamilies(&r.selected)
	if err != nil {
		return nil, fmt.Errorf("the page: %w", err)
	}
	return f, nil
}

// pick copies the wanted samples to selected, line by line.
func (r *reader) pick(body io.Reader, limit int64) error {
	var total int64
	start, skip := true, false // nothing was read; the rest of a long line
	n := 0                     // what buf holds of a line
	for {
		k, err := body.Read(r.buf[n:])
		if total += int64(k); total > limit {
			return errTooLong
		}
		if k > 0 && start {
			start = false
			if r.buf[0] == '[' || r.buf[0] == '{' {
				return errNotText
			}
		}
		rest := r.buf[:n+k]
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			if !skip {
				r.take(rest[:i])
			}
			skip, rest = false, rest[i+1:]
		}
		if len(rest) == len(r.buf) {
			skip, rest = true, nil
		}
		n = copy(r.buf, rest)
		if r.selected.Len() > maxSelected {
			return errTooMany
		}
		switch {
		case err == io.EOF:
			if !skip {
				r.take(r.buf[:n])
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// take keeps line where it is a sample that is wanted.
func (r *reader) take(line []byte) {
	i := 0
	for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
		i++
	}
	line = line[i:]
	if len(line) == 0 || line[0] == '#' {
		return
	}
	for i = 0; i < len(line) && line[i] != '{' && line[i] != ' ' && line[i] != '\t'; {
		i++
	}
	if wanted[string(line[:i])] {
		r.selected.Write(bytes.TrimSuffix(line, []byte("\r")))
		r.selected.WriteByte('\n')
	}
}

// families are the samples of a page by their names.
type families map[string]*dto.MetricFamily

// page returns what the page says of a rank, "" for all together, by the first
// dialect whose load it has. Where it has no load, what else it says comes with the
// error.
func (f families) page(rank string) (page, error) {
	out := page{start: -1, count: -1}
	out.Running, out.Waiting, out.KVUsage, out.KVUsageMean = -1, -1, -1, -1
	var err = errNoLoad
	for i := range dialects {
		d := &dialects[i]
		if !slices.ContainsFunc(d.names, func(name string) bool { return f[name] != nil }) {
			continue
		}
		of, ok := f.rank(d, rank)
		if !ok {
			if out.Dialect == noDialect {
				err = fmt.Errorf("%w as %q", errNoRank, rank)
			}
			continue
		}
		p := out
		e := d.read(of, &p)
		if out.Dialect == noDialect || e == nil {
			out, err = p, e
			out.Dialect = d.name
		}
		if e == nil {
			break
		}
	}
	if v, ok := f.only(startName); ok && v > 0 {
		out.start = v
		out.Started = seconds(v)
	}
	return out, err
}

// rank returns the samples of d that are of one rank, false where there are none. A
// counter that is kept for all ranks together is each one's. A page that does not
// tell ranks apart has one, 0.
func (f families) rank(d *dialect, rank string) (families, bool) {
	if rank == "" {
		return f, true
	}
	apart, found := false, false
	out := make(families, len(d.names))
	for _, name := range d.names {
		mf := f[name]
		if mf == nil {
			continue
		}
		var own, shared []*dto.Metric
		for _, m := range mf.GetMetric() {
			switch l := label(m, d.rank); {
			case d.rank == "" || l == "":
				shared = append(shared, m)
			case l == rank:
				own = append(own, m)
			}
		}
		switch {
		case len(own) > 0:
			apart, found = true, true
		case len(shared) < len(mf.GetMetric()):
			apart = true
		case strings.HasSuffix(name, "_total"):
			own = shared
		}
		out[name] = &dto.MetricFamily{Name: mf.Name, Type: mf.Type, Metric: own}
	}
	if !apart {
		return f, rank == "0"
	}
	return out, found
}
