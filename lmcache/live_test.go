package lmcache

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

func lines[T any](t *testing.T, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []T
	for s := bufio.NewScanner(f); s.Scan(); {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%s: line %d: %v", path, len(all)+1, err)
		}
		all = append(all, v)
	}
	return all
}

// ratios is the fill of LMCache's L1 in each recorded state, as the tool that
// filled it said, to three digits.
var ratios = map[string]float64{"empty": 0, "partial": 0.3125, "half": 0.5, "near_watermark": 0.797,
	"after_eviction": 0.773}

// Whatever LMCache's servers were seen to answer, on any path, is polled over a
// socket: the two that report the fill are understood, all others are failures.
func TestLiveAnswers(t *testing.T) {
	dir := filepath.Join("testdata", "recorded")
	type reply struct {
		State, Method, Path string
		Status              int
		ContentType         string `json:"content_type"`
		Body                json.RawMessage
	}
	recorded := lines[reply](t, filepath.Join(dir, "http.jsonl"))
	if len(recorded) < 30 {
		t.Fatalf("only %d answers", len(recorded))
	}
	files := map[string]bool{}
	bodies := make([][]byte, len(recorded))
	for i, r := range recorded {
		bodies[i] = r.Body
		if r.Path == "/metrics" {
			name := "metrics_" + r.State + ".txt"
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			bodies[i], files[name] = b, true
		}
	}
	// Each file is one of a recorded answer.
	all, err := filepath.Glob(filepath.Join(dir, "metrics_*.txt"))
	if err != nil || len(all) != len(files) || len(all) == 0 {
		t.Errorf("%d pages, %d of them answers (%v)", len(all), len(files), err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d/", &i); err != nil || i >= len(recorded) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", recorded[i].ContentType)
		w.WriteHeader(recorded[i].Status)
		_, _ = w.Write(bodies[i])
	}))
	t.Cleanup(srv.Close)

	var ps []Target
	for i, r := range recorded {
		for _, k := range []Kind{KindAny, KindStatus, KindMetrics, KindOccupancy} {
			ps = append(ps, Target{
				ID: fmt.Sprint(i, k), Endpoint: fmt.Sprintf("%s/%d%s", srv.URL, i, r.Path), Kind: k,
				Refresh: 100 * time.Millisecond, Timeout: 20 * time.Second, Stale: time.Minute,
			})
		}
	}
	p := mustNew(t, Config{Targets: ps})
	run(t, p)
	seen := map[Kind]int{}
	for i, r := range recorded {
		fits := KindAny
		if _, ok := ratios[r.State]; ok && r.Status == 200 {
			fits = map[string]Kind{"/status": KindStatus, "/metrics": KindMetrics}[r.Path]
		}
		for _, k := range []Kind{KindAny, KindStatus, KindMetrics, KindOccupancy} {
			id := fmt.Sprint(i, k)
			what := fmt.Sprintf("%s %s in state %s as %q", r.Method, r.Path, r.State, k)
			eventually(t, what, func() bool { return p.Status(id).State != Unknown })
			got := p.Status(id)
			if fits == KindAny || k != KindAny && k != fits {
				if got.State != Failed || got.Err == nil || !math.IsNaN(p.free(id)) {
					t.Errorf("%s: %+v", what, got)
				}
				continue
			}
			want := ratios[r.State]
			if got.State != Available || got.Kind != fits || math.Abs(got.Occupancy-want) > 5e-4 {
				t.Errorf("%s: %+v, want occupancy %v", what, got, want)
			}
			if f := max(0, 1-got.Occupancy/0.6); !p.says(id, f) {
				t.Errorf("%s: free %v, want %v", what, p.free(id), f)
			}
			seen[fits]++
		}
	}
	if seen[KindStatus] < 2*4 || seen[KindMetrics] < 2*5 {
		t.Errorf("understood: %v", seen)
	}
}

// A server starts, fills up, evicts, fills up again, and stops, as it was seen to.
func TestLiveLifecycle(t *testing.T) {
	dir := filepath.Join("testdata", "recorded")
	type line struct {
		Phase  string
		Ratio  *float64
		Status *int `json:"http_status"`
	}
	recorded := lines[line](t, filepath.Join(dir, "lifecycle.jsonl"))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()

	var ratio atomic.Value
	var polls atomic.Int64
	ratio.Store(0.0)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r := ratio.Load().(float64)
		_, _ = fmt.Fprintf(w,
			`{"is_healthy": true, "storage_manager": {"is_healthy": true, "l1_manager": {"is_healthy": true, "memory_usage_ratio": %v}}}`, r)
		polls.Add(1)
	})}
	t.Cleanup(func() { _ = srv.Close() })

	var ch changes
	p := mustNew(t, Config{
		Targets: []Target{{ID: "a", Endpoint: "http://" + addr + "/status", Refresh: 5 * time.Millisecond,
			Timeout: 20 * time.Second, Stale: time.Minute}},
		Trace: Trace{Changed: ch.changed},
	})
	run(t, p)
	// The recording has the stop, of another run, before the fill.
	slices.SortStableFunc(recorded, func(a, b line) int {
		phase := func(l line) int { return slices.Index([]string{"sta", "fil", "sto"}, l.Phase[:3]) }
		return cmp.Compare(phase(a), phase(b))
	})
	up, fullest, lowest := false, 0.0, 1.0
	for i, r := range recorded {
		what := fmt.Sprintf("line %d, %s", i+1, r.Phase)
		switch {
		case r.Ratio != nil:
			ratio.Store(*r.Ratio)
			n := polls.Load()
			eventually(t, what+": it is polled", func() bool { return polls.Load() > n+1 })
			want := max(0, 1-*r.Ratio/DefaultWatermark)
			eventually(t, fmt.Sprintf("%s: free %v", what, want), func() bool { return p.says("a", want) })
			if strings.Contains(r.Phase, "past the watermark") {
				fullest, lowest = max(fullest, *r.Ratio), min(lowest, *r.Ratio)
				if p.free("a") != 0 {
					t.Errorf("%s: a full cache is %v free at %v", what, p.free("a"), *r.Ratio)
				}
			}
		case r.Status == nil: // refused
			if up {
				_ = srv.Close()
				up = false
			}
			before := p.Status("a").Failures
			eventually(t, what+": polls are refused", func() bool { return p.Status("a").Failures > before })
			if !math.IsNaN(p.free("a")) {
				t.Fatalf("%s: free %v", what, p.free("a"))
			}
		case !up:
			eventually(t, what+": the port is free", func() bool { l, err = net.Listen("tcp", addr); return err == nil })
			go func(l net.Listener) { _ = srv.Serve(l) }(l)
			up = true
			eventually(t, what+": it is up", func() bool { return p.says("a", 1) })
		}
	}
	if fullest-lowest < 0.1 || up {
		t.Errorf("the recording has a swing from %v to %v, and ends up: %v", lowest, fullest, up)
	}
	if st := p.Status("a"); st.State != Failed || st.Occupancy != ratio.Load() {
		t.Errorf("after the stop: %+v", st)
	}
	want := []string{"a: unknown -> failed", "a: failed -> available", "a: available -> failed"}
	if diff := gocmp.Diff(want, ch.all()); diff != "" {
		t.Errorf("changes: (-want +got)\n%s", diff)
	}
}
