package loadview

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"

	"github.com/warmroute/router/internal/shareddata"
)

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func parse(s string) (page, error) { return parseRank(s, "") }

func parseRank(s, rank string) (page, error) {
	f, err := new(reader).read(strings.NewReader(s), DefaultMaxBody)
	if err != nil {
		return page{}, err
	}
	return f.page(rank)
}

func wantEngine(t *testing.T, name string, want, got Engine) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestPages(t *testing.T) {
	for name, want := range map[string]Engine{
		"vllm_dp_old":  {Dialect: VLLM, Running: 8, Waiting: 7, KVUsage: 0.75, KVUsageMean: 0.5, Asleep: true, Started: time.Unix(1.75e9, 0)},
		"vllm_v0":      {Dialect: VLLM, Running: 2, Waiting: 5, KVUsage: 0.5, KVUsageMean: 0.5},
		"sglang_ranks": {Dialect: SGLang, Running: 7, Waiting: 6, KVUsage: 0.5, KVUsageMean: 0.3},
		"trtllm":       {Dialect: TensorRT, Running: 6, Waiting: 2, KVUsage: 0.62, KVUsageMean: 0.62},
		"triton":       {Dialect: Triton, Running: 3, Waiting: 4, KVUsage: 0.4875, KVUsageMean: 0.4875},
		"tgi":          {Dialect: TGI, Running: 8, Waiting: 5, KVUsage: -1, KVUsageMean: -1},
		"llamacpp":     {Dialect: LlamaCpp, Running: 4, Waiting: 46, KVUsage: 0.375, KVUsageMean: 0.375},
	} {
		s := read(t, filepath.Join("testdata", name+".txt"))
		for _, form := range []string{s, strings.ReplaceAll(s, "\n", "\r\n"), strings.TrimSuffix(s, "\n"), reversed(s)} {
			p, err := parse(form)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantEngine(t, name, want, p.Engine)
		}
	}
	// Older trtllm-serve tells how full its cache is, and no load.
	p, err := parse(read(t, filepath.Join("testdata", "trtllm_1.0.txt")))
	if !errors.Is(err, errNoLoad) {
		t.Error(err)
	}
	wantEngine(t, "trtllm_1.0", Engine{Dialect: TensorRT, Running: -1, Waiting: -1, KVUsage: 0.62, KVUsageMean: 0.62}, p.Engine)
}

// reversed returns the lines in the opposite order: it never matters.
func reversed(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	slices.Reverse(lines)
	return strings.Join(lines, "\n") + "\n"
}

func TestBadPages(t *testing.T) {
	vllm := read(t, filepath.Join("testdata", "vllm_dp_old.txt"))
	for name, c := range map[string]struct {
		page string
		want error
	}{
		"empty":             {"", errNoLoad},
		"html":              {"<html><body>503</body></html>", errNoLoad},
		"JSON":              {`[{"numActiveRequests":5}]`, errNotText},
		"no stats":          {"python_info 1\nprocess_start_time_seconds 1\n", errNoLoad},
		"NaN":               {strings.Replace(vllm, "} 5.0", "} NaN", 1), errBadCount},
		"infinite":          {strings.Replace(vllm, "} 5.0", "} +Inf", 1), errBadCount},
		"negative":          {strings.Replace(vllm, "} 5.0", "} -1", 1), errBadCount},
		"NaN waiting":       {strings.Replace(vllm, "} 7.0", "} NaN", 1), errBadCount},
		"no waiting":        {regexp.MustCompile(`(?m)^vllm:num_requests_waiting\{.*\n`).ReplaceAllString(vllm, ""), errNoLoad},
		"a cut line":        {vllm[:strings.Index(vllm, `vllm:num_requests_running{engine="0"`)+30], nil},
		"no number":         {strings.Replace(vllm, "} 5.0", "} five", 1), nil},
		"too long":          {strings.Repeat("# nothing\n", DefaultMaxBody/10+1), errTooLong},
		"one endless line":  {strings.Repeat("x", DefaultMaxBody+1), errTooLong},
		"endlessly many":    {strings.Repeat(`vllm:num_requests_running{engine="1"} 1`+"\n", maxSelected/30), errTooMany},
		"a label unclosed":  {"vllm:num_requests_running{engine=\"1 1\n", nil},
		"priorities only":   {"sglang:num_running_reqs{priority=\"1\"} 1\nsglang:num_queue_reqs{priority=\"1\"} 1\n", errNoLoad},
		"two engines' half": {"vllm:num_requests_running 1\ntgi_queue_size 2\n", errNoLoad},
	} {
		if p, err := parse(c.page); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %+v", name, err, p.Engine)
		}
	}
	p, err := parse("vllm:num_requests_waiting 1\ntgi_queue_size 2\ntgi_batch_current_size 3\n")
	if err != nil {
		t.Error(err)
	}
	wantEngine(t, "the complete one counts", Engine{Dialect: TGI, Running: 3, Waiting: 2, KVUsage: -1, KVUsageMean: -1}, p.Engine)
	p, err = parse("vllm:num_requests_running 1e300\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc NaN\n")
	if err != nil || p.Running != maxRequests || p.KVUsage != -1 {
		t.Errorf("%v, %+v", err, p.Engine)
	}
}

// The pages of real engines, with the numbers that a person reads off them.
func TestRealPages(t *testing.T) {
	vllm := func(running, waiting int, kv, start float64) Engine {
		e := Engine{Dialect: VLLM, Running: running, Waiting: waiting, KVUsage: kv, KVUsageMean: kv}
		if start > 0 {
			e.Started = seconds(start)
		}
		return e
	}
	sglang := func(running, waiting int, kv, mean float64) Engine {
		return Engine{Dialect: SGLang, Running: running, Waiting: waiting, KVUsage: kv, KVUsageMean: mean}
	}
	want := map[string]Engine{
		"vllm_live/v0.16.0/metrics_idle.txt":             vllm(0, 0, 0, 1.795987529e9),
		"vllm_live/v0.16.0/metrics_load.txt":             vllm(3, 21, 1, 1.79598778841e9),
		"vllm_live/v0.23.0/metrics_idle.txt":             vllm(0, 0, 0, 1.79598587409e9),
		"vllm_live/v0.23.0/metrics_load.txt":             vllm(2, 22, 0.7333333333333334, 1.7959862361e9),
		"vllm_live/v0.25.1/metrics_idle.txt":             vllm(0, 0, 0, 1.79598679007e9),
		"vllm_live/v0.25.1/metrics_load.txt":             vllm(2, 22, 0.7, 1.7959870611e9),
		"vllm_live/v0.32.0/metrics_dp2.txt":              vllm(0, 0, 0, 0),
		"vllm_live/v0.32.0/metrics_hybrid.txt":           vllm(0, 0, 0, 1.79598743242e9),
		"vllm_live/v0.32.0/metrics_idle.txt":             vllm(0, 0, 0, 1.79598548423e9),
		"vllm_live/v0.32.0/metrics_load.txt":             vllm(5, 19, 0.85, 1.79598577302e9),
		"sglang_live/metrics_sglang-0.5.23_single.txt":   sglang(3, 2, 0.31, 0.31),
		"sglang_live/metrics_sglang-0.5.23_priority.txt": sglang(3, 2, 0.31, 0.31),
		"sglang_live/metrics_sglang-0.5.23_dpattn2.txt":  sglang(9, 6, 0.62, 0.465),
		"sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt":  sglang(9, 6, 0.62, 0.465),
	}
	seen := map[string]bool{}
	for name, s := range realPages(t) {
		p, err := parse(s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.HasPrefix(name, "llmd_sim") {
			wantEngine(t, name, vllm(0, 0, 0, 0), p.Engine)
			continue
		}
		w, ok := want[name]
		if !ok {
			t.Errorf("%s: nobody has read its numbers yet: %+v", name, p.Engine)
			continue
		}
		seen[name] = true
		wantEngine(t, name, w, p.Engine)
		// The rules again, by other means: the engines' own lines added up by regexp.
		if strings.HasPrefix(name, "vllm") {
			if r, q := sumLines(t, s, `vllm:num_requests_running\{`), sumLines(t, s, `vllm:num_requests_waiting\{`); p.Running != r || p.Waiting != q {
				t.Errorf("%s: %d and %d, by its lines %d and %d", name, p.Running, p.Waiting, r, q)
			}
		}
		// A busier page: what each engine runs is its number, so nothing cancels out.
		i := 0
		busy := regexp.MustCompile(`(?m)^(vllm:num_requests_running\{.*\} )0\.0$`).ReplaceAllStringFunc(s, func(l string) string {
			i++
			return strings.TrimSuffix(l, "0.0") + strconv.Itoa(i)
		})
		if b, err := parse(busy); err != nil || i > 0 && b.Running != i*(i+1)/2 {
			t.Errorf("%s: %d engines run 1, 2, ...: %d in all, %v", name, i, b.Running, err)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Logf("%s is not here", name)
		}
	}
}

func sumLines(t *testing.T, s, start string) (n int) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^`+start+`.* ([0-9.]+)$`).FindAllStringSubmatch(s, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		n += int(v)
	}
	return n
}

// realPages returns every recorded page by its name.
func realPages(t testing.TB) map[string]string {
	t.Helper()
	root := shareddata.Path(t, "vllm_live")
	pages := map[string]string{}
	for _, glob := range []string{"../vllm_live/*/metrics_*.txt", "../sglang_live/metrics_*.txt"} {
		files, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			rel, err := filepath.Rel(filepath.Dir(root), f)
			if err != nil {
				t.Fatal(err)
			}
			pages[filepath.ToSlash(rel)] = read(t, f)
		}
	}
	all := read(t, shareddata.Path(t, "llmd_sim_metrics.txt"))
	for i, s := range strings.Split(all, "### run ")[1:] {
		_, s, _ = strings.Cut(s, "\n")
		pages[fmt.Sprintf("llmd_sim_metrics.txt#%d", i)] = s
	}
	if len(pages) < 10 {
		t.Fatalf("only %d pages", len(pages))
	}
	return pages
}

// TestPick holds the choice of lines against the parser on the whole page,
// whatever the pieces in which the page comes.
func TestPick(t *testing.T) {
	for name, s := range realPages(t) {
		want := whole(t, s)
		if len(want) < 3 {
			t.Errorf("%s has only %v", name, want)
		}
		for how, body := range map[string]io.Reader{
			"at once": strings.NewReader(s), "in halves": iotest.HalfReader(strings.NewReader(s)),
			"with the error": iotest.DataErrReader(strings.NewReader(s)), "in bytes": iotest.OneByteReader(strings.NewReader(s)),
		} {
			var r reader
			r.buf = make([]byte, lineBuffer)
			if err := r.pick(body, DefaultMaxBody); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, whole(t, r.selected.String())); diff != "" {
				t.Errorf("%s %s (-whole +picked):\n%s", name, how, diff)
			}
		}
	}
}

// whole returns the wanted samples of a page, as text.
func whole(t *testing.T, s string) []string {
	t.Helper()
	p := expfmt.NewTextParser(prom.UTF8Validation)
	fs, err := p.TextToMetricFamilies(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name, f := range fs {
		if !wanted[name] {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			v := m.GetUntyped().GetValue() + m.GetGauge().GetValue() + m.GetCounter().GetValue()
			line := fmt.Sprint(name, v)
			for _, k := range slices.Sorted(maps.Keys(labels)) {
				line += fmt.Sprintf(" %s=%q", k, labels[k])
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func TestLongLines(t *testing.T) {
	for _, n := range []int{lineBuffer - 1, lineBuffer, lineBuffer + 1, 3*lineBuffer - 7, 3 * lineBuffer} {
		long := "x{l=\"" + strings.Repeat("v", n-7) + "\"}"
		s := long + "\ntgi_queue_size 2\n" + long + "\n" + long + "\ntgi_batch_current_size 3\n# " + long
		p, err := parse(s)
		if err != nil || p.Waiting != 2 || p.Running != 3 {
			t.Errorf("lines of %d: %v, %+v", n, err, p.Engine)
		}
	}
}

func FuzzPage(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		f.Add([]byte(read(f, name)))
	}
	f.Add([]byte("process_start_time_seconds 1e308\nvllm:num_requests_running 1\nvllm:num_requests_waiting{} 1 2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, rank := range []string{"", "0", "1"} {
			checkPage(t, string(b), rank)
		}
	})
}

func checkPage(t *testing.T, s, rank string) {
	p, err := parseRank(s, rank)
	if err == nil && (p.Running < 0 || p.Waiting < 0 || p.Dialect == noDialect) {
		t.Errorf("rank %q: %+v without an error", rank, p.Engine)
	}
	if p.Dialect != noDialect && (!(p.KVUsage >= -1 && p.KVUsage <= 1) || p.KVUsageMean > p.KVUsage) {
		t.Errorf("rank %q: %+v", rank, p.Engine)
	}
}

func BenchmarkPage(b *testing.B) {
	pages := realPages(b)
	for _, name := range []string{"vllm_live/v0.32.0/metrics_load.txt", "sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt"} {
		b.Run(filepath.Base(name), func(b *testing.B) {
			s := pages[name]
			var r reader
			b.SetBytes(int64(len(s)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.read(strings.NewReader(s), DefaultMaxBody); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
