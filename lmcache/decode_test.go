package lmcache

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	occupancy := func(o float64, available bool) answer { return answer{KindOccupancy, o, available} }
	status := func(o float64, healthy bool) answer { return answer{KindStatus, o, healthy} }
	metrics := func(o float64) answer { return answer{KindMetrics, o, true} }
	const gauge = "lmcache_mp_l1_usage_ratio"
	for _, c := range []struct {
		name, body string
		kind       Kind
		want       answer
		fails      string // part of the error
	}{
		{name: "contract", body: `{"occupancy": 0.5, "cache_available": true}`, want: occupancy(0.5, true)},
		{name: "available by default", body: `{"occupancy": 0}`, want: occupancy(0, true)},
		{name: "not available", body: `{"cache_available": false, "occupancy": 1}`, want: occupancy(1, false)},
		{name: "unknown fields", body: " \r\n\t{\"x\": [{}, null], \"occupancy\": 5e-1, \"x\": 2}\n",
			want: occupancy(0.5, true)},
		{name: "above 1", body: `{"occupancy": 1e300}`, want: occupancy(1, true)},
		{name: "below 0", body: `{"occupancy": -3}`, want: occupancy(0, true)},
		{name: "both kinds", body: `{"occupancy": 0.5, "storage_manager": {}}`, want: occupancy(0.5, true)},
		{name: "no occupancy", body: `{"cache_available": true}`, fails: "neither occupancy nor"},
		{name: "no occupancy, asked for", body: `{"storage_manager": {}}`, kind: KindOccupancy, fails: "no occupancy"},
		{name: "null", body: `{"occupancy": null}`, fails: "not a number"},
		{name: "text", body: `{"occupancy": "0.5"}`, fails: "not a number"},
		{name: "huge number", body: `{"occupancy": 1e400}`, fails: "not a number"},
		{name: "long number", body: `{"occupancy": 0.` + strings.Repeat("3", 5000) + `}`, want: occupancy(1.0/3, true)},
		{name: "NaN", body: `{"occupancy": NaN}`, fails: "broken"},
		{name: "Infinity", body: `{"occupancy": Infinity}`, fails: "broken"},
		{name: "available is text", body: `{"occupancy": 0.5, "cache_available": "false"}`, fails: "neither true nor false"},
		{name: "available is null", body: `{"occupancy": 0.5, "cache_available": null}`, fails: "neither true nor false"},
		{name: "other case", body: `{"Occupancy": 0.5}`, fails: "neither occupancy nor"},
		{name: "other case beside", body: `{"occupancy": 0.5, "OCCUPANCY": 0.9}`, want: occupancy(0.5, true)},
		{name: "twice", body: `{"occupancy": 0.1, "occupancy": 0.9}`, fails: "there twice"},
		{name: "twice, escaped", body: `{"occupancy": 0.1, "\u006fccupancy": 0.9}`, fails: "there twice"},
		{name: "twice available", body: `{"occupancy": 0.1, "cache_available": true, "cache_available": false}`,
			fails: "there twice"},
		{name: "two objects", body: `{"occupancy": 0.1} {"occupancy": 0.2}`, fails: "more than one"},
		{name: "rubbish behind", body: `{"occupancy": 0.1}}`, fails: "more than one"},
		{name: "cut", body: `{"occupancy": 0.1`, fails: "broken"},
		{name: "cut early", body: `{`, fails: "broken"},
		{name: "deep", body: `{"x": ` + strings.Repeat("[", 30000) + strings.Repeat("]", 30000) + `}`, fails: "broken"},
		{name: "array", body: `[{"occupancy": 0.1}]`, fails: "no lmcache_mp"},
		{name: "array, asked for JSON", body: `[]`, kind: KindOccupancy, fails: "not a JSON object"},
		{name: "empty", body: "", fails: "empty"},
		{name: "white", body: " \n", fails: "empty"},
		{name: "HTML", body: "\n<!DOCTYPE html><html>502</html>", fails: "HTML"},
		{name: "byte order mark", body: "\ufeff{\"occupancy\": 0.1}", fails: "no lmcache_mp"},
		{name: "as long as may be", body: `{"occupancy": 0.5}` + strings.Repeat(" ", MaxBody-18), want: occupancy(0.5, true)},
		{name: "too long", body: `{"occupancy": 0.5}` + strings.Repeat(" ", MaxBody-17), fails: "longer than 65536"},
		{name: "too long before", body: strings.Repeat(" ", MaxBody-17) + `{"occupancy": 0.5}`, fails: "longer than 65536"},

		{name: "status", body: `{"is_healthy": true, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.75}}}`,
			want: status(0.75, true)},
		{name: "several L1s",
			body: `{"storage_manager": {"l1_managers": {"a": {"memory_usage_ratio": 0.2}, "b": {"memory_usage_ratio": 0.6}, "c": {}}}}`, want: status(0.6, true)},
		{name: "one in both",
			body: `{"storage_manager": {"l1_manager": {"memory_usage_ratio": 0.3}, "l1_managers": {"a": {"memory_usage_ratio": 0.3}}}}`, want: status(0.3, true)},
		{name: "unhealthy", body: `{"is_healthy": false, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.3}}}`,
			want: status(0.3, false)},
		{name: "unhealthy storage",
			body: `{"is_healthy": true, "storage_manager": {"is_healthy": false, "l1_manager": {"memory_usage_ratio": 0.3}}}`,
			want: status(0.3, false)},
		{name: "unhealthy L1",
			body: `{"storage_manager": {"l1_managers": {"a": {"is_healthy": false, "memory_usage_ratio": 0.3}}}}`,
			want: status(0.3, false)},
		{name: "odd health", body: `{"is_healthy": 1, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.3}}}`,
			fails: "is_healthy"},
		{name: "no L1", body: `{"storage_manager": {"l1_managers": {}}}`, fails: "no L1"},
		{name: "no ratio", body: `{"storage_manager": {"l1_manager": {}}}`, fails: "no L1"},
		{name: "null ratio", body: `{"storage_manager": {"l1_manager": {"memory_usage_ratio": null}}}`,
			fails: "l1_manager: memory_usage_ratio"},
		{name: "null storage", body: `{"storage_manager": null}`, fails: "not a JSON object"},
		{name: "L1s are a list", body: `{"storage_manager": {"l1_managers": []}}`, fails: "not a JSON object"},
		{name: "twice in an L1",
			body:  `{"storage_manager": {"l1_manager": {"memory_usage_ratio": 0, "memory_usage_ratio": 1}}}`,
			fails: "there twice"},
		{name: "status asked for", body: `{"occupancy": 0.1}`, kind: KindStatus, fails: "no storage_manager"},
		{name: "status asked for, both",
			body: `{"occupancy": 0.1, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.3}}}`, kind: KindStatus,
			want: status(0.3, true)},

		{name: "gauge", body: "# TYPE " + gauge + " gauge\n" + gauge + `{backend="dram",l1_tag="_default"} 0.3125` + "\n",
			want: metrics(0.3125)},
		{name: "no labels, no end of line", body: "other 1\n" + gauge + " 0.5", want: metrics(0.5)},
		{name: "timestamp and carriage return", body: gauge + " 0.5 1795987490605\r\n", want: metrics(0.5)},
		{name: "several", body: gauge + `{l1_tag="a"} 0.25` + "\n" + gauge + `{l1_tag="b"} 0.5` + "\n" + gauge +
			`{l1_tag="c"} 0` + "\n", want: metrics(0.5)},
		{name: "clamped", body: gauge + " 17\n", want: metrics(1)},
		{name: "no gauge", body: "up 1\n", fails: "no lmcache_mp_l1_usage_ratio"},
		{name: "longer names", body: gauge + "_max 0.5\nx_" + gauge + " 0.5\n", fails: "no lmcache_mp"},
		{name: "only TYPE", body: "# TYPE " + gauge + " gauge\n", fails: "no lmcache_mp"},
		{name: "metric NaN", body: gauge + " NaN\n", fails: "is NaN"},
		{name: "one is NaN", body: gauge + "{a=\"1\"} 0.5\n" + gauge + "{a=\"2\"} NaN\n", fails: "is NaN"},
		{name: "metric Inf", body: gauge + " +Inf\n", fails: "is +Inf"},
		{name: "metric -Inf", body: gauge + " -Inf\n", fails: "is -Inf"},
		{name: "metric huge", body: gauge + " 1e400\n", fails: gauge},
		{name: "metric text", body: gauge + " full\n", fails: gauge},
		{name: "metric broken label", body: gauge + "{a=\"1} 0.5\n", fails: gauge},
		{name: "long line before", body: "x{a=\"" + strings.Repeat("y", 3*maxLine) + "\"} 1\n" + gauge + " 0.5\n",
			want: metrics(0.5)},
		{name: "end of a long line", body: "x{a=\"" + strings.Repeat("y", maxLine-6) + gauge + " 0.9\n" + gauge + " 0.5\n",
			want: metrics(0.5)},
		{name: "many series", body: strings.Repeat(gauge+`{l1_tag="abcdefghijklmnopqrstuvwxyz"} 0.5`+"\n", 2000),
			fails: "more than 65536 bytes of"},
		{name: "a megabyte", body: gauge + " 0.5\n" + strings.Repeat("#\n", (MaxMetrics-len(gauge)-5)/2), want: metrics(0.5)},
		{name: "more than a megabyte", body: gauge + " 0.5\n" + strings.Repeat("#\n", MaxMetrics/2),
			fails: "longer than 1048576"},
		{name: "metrics asked for", body: `{"occupancy": 0.1}`, kind: KindMetrics, fails: "JSON, not metrics"},
		{name: "JSON asked for", body: gauge + " 0.5\n", kind: KindStatus, fails: "not a JSON object"},
	} {
		got, err := decode(strings.NewReader(c.body), c.kind)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %+v, %v; want an error with %q", c.name, got, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(answer{})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
}

// A body that breaks off says nothing, even where what it would say was there.
func TestDecodeBrokenOff(t *testing.T) {
	broken := errors.New("connection reset")
	for _, body := range []string{"", "   ", `{"occupancy": 0.5}`, ratioName + " 0.5\n", ratioName + " 0.5\nmore"} {
		r := io.MultiReader(strings.NewReader(body), readerFunc(func([]byte) (int, error) { return 0, broken }))
		if a, err := decode(r, KindAny); !errors.Is(err, broken) {
			t.Errorf("%q: %+v, %v", body, a, err)
		}
	}
}

// What is read of an endless body is bounded.
func TestDecodeEndless(t *testing.T) {
	for _, c := range []struct {
		head, fill string
		most       int
	}{
		{"", " ", MaxMetrics}, {"{", " ", MaxBody}, {`{"a": "`, "x", MaxBody}, {`{"occupancy": 0.5}`, "\n", MaxBody},
		{"up 1\n", "x", MaxMetrics}, {"", "\n", MaxMetrics}, {"<html>", "x", 0}, {"", ratioName + " 0.5\n", MaxBody},
	} {
		read := 0
		r := io.MultiReader(strings.NewReader(c.head), readerFunc(func(b []byte) (int, error) {
			n := 0
			for n < len(b) {
				n += copy(b[n:], c.fill)
			}
			read += n
			return n, nil
		}))
		if a, err := decode(r, KindAny); err == nil {
			t.Errorf("%q: %+v", c.head, a)
		}
		if slack := 2*maxLine + 512; read > c.most+slack {
			t.Errorf("%q%q...: %d bytes were read", c.head, c.fill, read)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"occupancy": 0.5, "cache_available": true}`,
		`{"occupancy": 1e999, "occupancy": 1}`,
		`{"is_healthy": true, "storage_manager": {"l1_managers": {"a": {"memory_usage_ratio": 0.2}}}}`,
		ratioName + `{backend="dram",l1_tag="_default"} 0.3125` + "\n",
		ratioName + " NaN\n" + ratioName + "{} +Inf 1\n",
		ratioName + "{\"q\",a=\"\\\\\"} 0x1p-2\n# HELP\n", "<html>", "\x1f\x8b",
	} {
		for _, k := range []string{"", "occupancy", "status", "metrics"} {
			f.Add(body, k)
		}
	}
	f.Fuzz(func(t *testing.T, body, kind string) {
		if !slices.Contains([]string{"", "occupancy", "status", "metrics"}, kind) {
			t.Skip("there is no such kind")
		}
		a, err := decode(strings.NewReader(body), Kind(kind))
		if err != nil {
			if a != (answer{}) {
				t.Fatalf("%+v beside %v", a, err)
			}
			return
		}
		if !(a.occupancy >= 0 && a.occupancy <= 1) {
			t.Fatalf("occupancy %v", a.occupancy)
		}
		if kind != "" && a.kind != Kind(kind) {
			t.Fatalf("kind %q where %q is asked for", a.kind, kind)
		}
		var doc map[string]any
		d := json.NewDecoder(strings.NewReader(body))
		d.UseNumber()
		isJSON := json.Valid([]byte(body)) && d.Decode(&doc) == nil
		if isJSON != (a.kind != KindMetrics) {
			t.Fatalf("kind %q of %q", a.kind, body)
		}
		// What another reader of JSON finds is the same: names are not there twice.
		if a.kind == KindOccupancy {
			n, _ := doc["occupancy"].(json.Number)
			if v, err := n.Float64(); err != nil || clamp(v) != a.occupancy {
				t.Fatalf("occupancy %v of %q", a.occupancy, body)
			}
		}
		if v, ok := doc["cache_available"].(bool); a.kind == KindOccupancy && a.available != (!ok || v) {
			t.Fatalf("available %v of %q", a.available, body)
		}
		for _, w := range []float64{0.1, DefaultWatermark, 1} {
			if x := free(a.kind, a.occupancy, w); !(x >= 0 && x <= 1) {
				t.Fatalf("free %v of %v", x, a.occupancy)
			}
		}
	})
}

func TestFreeUpToTheWatermark(t *testing.T) {
	for _, c := range []struct {
		kind            Kind
		occupancy, want float64
	}{
		{KindOccupancy, 0, 1}, {KindOccupancy, 0.75, 0.25}, {KindOccupancy, 1, 0},
		{KindStatus, 0, 1}, {KindStatus, 0.3, 0.5}, {KindStatus, 0.6, 0}, {KindStatus, 0.65, 0}, {KindMetrics, 0.8,
			0}, {KindMetrics, 0.15, 0.75},
	} {
		if got := free(c.kind, c.occupancy, DefaultWatermark); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s %v: free %v, want %v", c.kind, c.occupancy, got, c.want)
		}
	}
}
