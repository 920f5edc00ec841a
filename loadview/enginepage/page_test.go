package enginepage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const maxBody = 4 << 20

var table = NewTable(Dialects())

func parse(s string) (State, error) { return parseRank(s, "") }

func parseRank(s, rank string) (State, error) {
	p, err := new(Reader).Read(strings.NewReader(s), table, maxBody)
	if err != nil {
		return State{}, err
	}
	return p.State(rank)
}

// wantState compares all of a State but the counter, which only a restart needs.
// A want without a Start stands for a page without one.
func wantState(t *testing.T, name string, want, got State) {
	t.Helper()
	if want.Start == 0 {
		want.Start = -1
	}
	want.Total = got.Total
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestPages(t *testing.T) {
	for name, want := range map[string]State{
		"vllm_dp_old":  {Dialect: VLLM, Running: 8, Waiting: 7, KVUsage: 0.75, KVUsageMean: 0.5, Asleep: true, Start: 1.75e9},
		"vllm_v0":      {Dialect: VLLM, Running: 2, Waiting: 5, KVUsage: 0.5, KVUsageMean: 0.5},
		"sglang_ranks": {Dialect: SGLang, Running: 7, Waiting: 6, KVUsage: 0.5, KVUsageMean: 0.3},
		"trtllm":       {Dialect: TensorRT, Running: 6, Waiting: 2, KVUsage: 0.62, KVUsageMean: 0.62},
		"triton":       {Dialect: Triton, Running: 3, Waiting: 4, KVUsage: 0.4875, KVUsageMean: 0.4875},
		"tgi":          {Dialect: TGI, Running: 8, Waiting: 5, KVUsage: -1, KVUsageMean: -1},
		"nim":          {Dialect: NIM, Running: 6, Waiting: 3, KVUsage: 0.25, KVUsageMean: 0.25, Start: 1.75e9},
		"llamacpp":     {Dialect: LlamaCpp, Running: 4, Waiting: 46, KVUsage: 0.375, KVUsageMean: 0.375},
	} {
		s := read(t, filepath.Join("testdata", name+".txt"))
		for _, form := range []string{s, strings.ReplaceAll(s, "\n", "\r\n"), strings.TrimSuffix(s, "\n"), reversed(s)} {
			p, err := parse(form)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantState(t, name, want, p)
		}
	}
	// Older trtllm-serve reports the usage of its cache, and no load.
	p, err := parse(read(t, filepath.Join("testdata", "trtllm_1.0.txt")))
	if !errors.Is(err, ErrNoLoad) {
		t.Error(err)
	}
	wantState(t, "trtllm_1.0", State{Dialect: TensorRT, Running: -1, Waiting: -1, KVUsage: 0.62, KVUsageMean: 0.62}, p)
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
		"empty":       {"", ErrNoLoad},
		"html":        {"<html><body>503</body></html>", ErrNoLoad},
		"JSON":        {`[{"numActiveRequests":5}]`, ErrNotText},
		"no stats":    {"python_info 1\nprocess_start_time_seconds 1\n", ErrNoLoad},
		"NaN":         {strings.Replace(vllm, "} 5.0", "} NaN", 1), ErrBadCount},
		"infinite":    {strings.Replace(vllm, "} 5.0", "} +Inf", 1), ErrBadCount},
		"negative":    {strings.Replace(vllm, "} 5.0", "} -1", 1), ErrBadCount},
		"NaN waiting": {strings.Replace(vllm, "} 7.0", "} NaN", 1), ErrBadCount},
		"no waiting": {regexp.MustCompile(`(?m)^vllm:num_requests_waiting\{.*\n`).ReplaceAllString(vllm, ""),
			ErrNoLoad},
		"a cut line":       {vllm[:strings.Index(vllm, `vllm:num_requests_running{engine="0"`)+30], nil},
		"no number":        {strings.Replace(vllm, "} 5.0", "} five", 1), nil},
		"too long":         {strings.Repeat("# nothing\n", maxBody/10+1), ErrTooLong},
		"one endless line": {strings.Repeat("x", maxBody+1), ErrTooLong},
		"endlessly many":   {strings.Repeat(`vllm:num_requests_running{engine="1"} 1`+"\n", maxWanted/30), ErrTooMany},
		"a label unclosed": {"vllm:num_requests_running{engine=\"1 1\n", nil},
		"priorities only": {"sglang:num_running_reqs{priority=\"1\"} 1\nsglang:num_queue_reqs{priority=\"1\"} 1\n",
			ErrNoLoad},
		"two engines' half": {"vllm:num_requests_running 1\ntgi_queue_size 2\n", ErrNoLoad},
	} {
		if p, err := parse(c.page); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %+v", name, err, p)
		}
	}
	p, err := parse("vllm:num_requests_waiting 1\ntgi_queue_size 2\ntgi_batch_current_size 3\n")
	if err != nil {
		t.Error(err)
	}
	wantState(t, "the complete one counts", State{Dialect: TGI, Running: 3, Waiting: 2, KVUsage: -1, KVUsageMean: -1}, p)
	p, err = parse("vllm:num_requests_running 1e300\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc NaN\n")
	if err != nil || p.Running != maxRequests || p.KVUsage != -1 {
		t.Errorf("%v, %+v", err, p)
	}
}

// The pages of real engines, with the numbers that a person reads off them.
func TestRealPages(t *testing.T) {
	vllm := func(running, waiting int, kv, start float64) State {
		e := State{Dialect: VLLM, Running: running, Waiting: waiting, KVUsage: kv, KVUsageMean: kv}
		if start > 0 {
			e.Start = start
		}
		return e
	}
	sglang := func(running, waiting int, kv, mean float64) State {
		return State{Dialect: SGLang, Running: running, Waiting: waiting, KVUsage: kv, KVUsageMean: mean}
	}
	want := map[string]State{
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
			wantState(t, name, vllm(0, 0, 0, 0), p)
			continue
		}
		name = strings.TrimSuffix(name, " (whole)")
		w, ok := want[name]
		if !ok {
			t.Errorf("%s: nobody has read its numbers yet: %+v", name, p)
			continue
		}
		seen[name] = true
		wantState(t, name, w, p)
		// The rules again, by other means: the engines' own lines added up by regexp.
		if strings.HasPrefix(name, "vllm") {
			if r, q := sumLines(t, s, `vllm:num_requests_running\{`), sumLines(t, s,
				`vllm:num_requests_waiting\{`); p.Running != r || p.Waiting != q {
				t.Errorf("%s: %d and %d, by its lines %d and %d", name, p.Running, p.Waiting, r, q)
			}
		}
		// A busier page: what each engine runs is its number, so nothing cancels out.
		i := 0
		busy := regexp.MustCompile(`(?m)^(vllm:num_requests_running\{.*\} )0\.0$`).ReplaceAllStringFunc(s,
			func(l string) string {
				i++
				return strings.TrimSuffix(l, "0.0") + strconv.Itoa(i)
			})
		if b, err := parse(busy); err != nil || i > 0 && b.Running != i*(i+1)/2 {
			t.Errorf("%s: %d engines run 1, 2, ...: %d in all, %v", name, i, b.Running, err)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("%s is not here", name)
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

// realPages returns every recorded page by its name: those of testdata, without
// most of their histograms, and the whole ones if they are next to the
// checkout.
func realPages(t testing.TB) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, root := range []string{"testdata/recorded", "../../../shared/data"} {
		for _, glob := range []string{"vllm_live/*/metrics_*.txt", "sglang_live/metrics_*.txt"} {
			files, err := filepath.Glob(filepath.Join(root, glob))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				rel, err := filepath.Rel(root, f)
				if err != nil {
					t.Fatal(err)
				}
				if root != "testdata/recorded" {
					rel += " (whole)"
				}
				pages[filepath.ToSlash(rel)] = read(t, f)
			}
		}
	}
	if b, err := os.ReadFile("../../../shared/data/llmd_sim_metrics.txt"); err == nil {
		for i, s := range strings.Split(string(b), "### run ")[1:] {
			_, s, _ = strings.Cut(s, "\n")
			pages[fmt.Sprintf("llmd_sim_metrics.txt#%d", i)] = s
		}
	}
	if len(pages) < 14 {
		t.Fatalf("only %d pages", len(pages))
	}
	return pages
}

// The pieces in which a page comes do not matter.
func TestPieces(t *testing.T) {
	for name, s := range realPages(t) {
		want, err := parse(s)
		if err != nil {
			t.Fatal(err)
		}
		for how, body := range map[string]io.Reader{
			"in halves":      iotest.HalfReader(strings.NewReader(s)),
			"with the error": iotest.DataErrReader(strings.NewReader(s)), "in bytes": iotest.OneByteReader(strings.NewReader(s)),
		} {
			p, err := new(Reader).Read(body, table, maxBody)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.State(""); got != want || err != nil {
				t.Errorf("%s %s: %+v, %v; at once %+v", name, how, got, err, want)
			}
		}
	}
}

const longLine = 64 << 10 // the longest line that is read

func TestLongLines(t *testing.T) {
	for _, n := range []int{longLine - 1, longLine, longLine + 1, 3*longLine - 7, 3 * longLine} {
		long := "x{l=\"" + strings.Repeat("v", n-7) + "\"}"
		s := long + "\ntgi_queue_size 2\n" + long + "\n" + long + "\ntgi_batch_current_size 3\n# " + long
		p, err := parse(s)
		if err != nil || p.Waiting != 2 || p.Running != 3 {
			t.Errorf("lines of %d: %v, %+v", n, err, p)
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
	if err == nil && (p.Running < 0 || p.Waiting < 0 || p.Dialect == "") {
		t.Errorf("rank %q: %+v without an error", rank, p)
	}
	if p.Dialect != "" && (!(p.KVUsage >= -1 && p.KVUsage <= 1) || p.KVUsageMean > p.KVUsage) {
		t.Errorf("rank %q: %+v", rank, p)
	}
}

func BenchmarkPage(b *testing.B) {
	pages := realPages(b)
	for _, name := range []string{"vllm_live/v0.32.0/metrics_load.txt", "sglang_live/metrics_sglang-0.5.23_dp2_tp2.txt"} {
		b.Run(filepath.Base(name), func(b *testing.B) {
			s := pages[name]
			var r Reader
			b.SetBytes(int64(len(s)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Read(strings.NewReader(s), table, maxBody); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
