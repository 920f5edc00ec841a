package lmcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/warmroute/router/egress"
)

// What a server can do wrong leaves its target neutral, and another one that is
// polled at the same time as it should be.
func TestBadServers(t *testing.T) {
	hang := func(r *http.Request) { <-r.Context().Done() }
	var sent, followed atomic.Int64
	victim := newServer(t)
	victim.does(func(w http.ResponseWriter, _ *http.Request) {
		followed.Add(1)
		_, _ = io.WriteString(w, `{"occupancy": 0}`)
	})
	endless := func(head, fill string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(int64(10<<30)))
			n, err := io.WriteString(w, head)
			for block := strings.Repeat(fill, 32<<10/len(fill)); err == nil; {
				sent.Add(int64(n))
				n, err = io.WriteString(w, block)
			}
		}
	}
	says := func(status int, header, value, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set(header, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const good = `{"occupancy": 0.1}`
	for _, c := range []struct {
		name  string
		does  http.HandlerFunc
		fails string // part of the error
	}{
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { hang(r) }, "no whole answer within"},
		{"hangs in the body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"occupancy": 0.5`)
			_ = http.NewResponseController(w).Flush()
			hang(r)
		}, "no whole answer within"},
		{"drips", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
			}
		}, "no whole answer within"},
		{"10 GB of JSON", endless(`{"occupancy": 0.5, "x": "`, "x"), "longer than"},
		{"10 GB of metrics", endless("lmcache_mp_l1_usage_ratio 0.5\n", "up 1\n"), "longer than"},
		{"10 GB of blanks", endless("", " "), "longer than"},
		{"redirects to the metadata service", says(302, "Location", "http://169.254.169.254/latest/meta-data/", ""),
			"redirects are not followed"},
		{"redirects to another server", says(307, "Location", victim.URL, good), "redirects are not followed"},
		{"redirects by itself", says(301, "Location", "/occupancy", good), "status 301"},
		{"not modified", says(304, "", "", ""), "status 304"},
		{"404", says(404, "", "", good), "status 404"},
		{"503", says(503, "Retry-After", "1", good), "status 503"},
		{"no content", says(204, "", "", ""), "empty"},
		{"HTML", says(200, "Content-Type", "text/html", "<html><body>Bad gateway</body></html>"), "HTML"},
		{"HTML that says it is JSON", says(200, "Content-Type", "application/json", "<html></html>"), "HTML"},
		{"NaN", says(200, "", "", `{"occupancy": NaN}`), "broken"},
		{"NaN metrics", says(200, "", "", "lmcache_mp_l1_usage_ratio NaN\n"), "NaN"},
		{"compressed", says(200, "Content-Encoding", "gzip", "\x1f\x8b\x08\x00"), "no lmcache_mp"},
		{"breaks off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, good)
		}, "EOF"},
		{"long header", says(200, "X", strings.Repeat("x", 100<<10), good), "header"},
		{"slams the door", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "closed early"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent.Store(0)
			bad, well := newServer(t), newServer(t)
			a := bad.target("bad")
			bad.does(c.does)
			if strings.Contains(c.fails, "no whole") {
				a.Timeout = 50 * time.Millisecond
			}
			var ch changes
			core, logs := observer.New(zap.DebugLevel)
			p := mustNew(t, Config{Targets: []Target{a, well.target("well")}, Logger: zap.New(core),
				Trace: Trace{Changed: ch.changed}})
			run(t, p)
			eventually(t, "three failures", func() bool { return p.Status("bad").Failures >= 3 })
			eventually(t, "the other is polled on", func() bool { return well.polls.Load() >= 3 && p.says("well", 0.75) })
			st := p.Status("bad")
			if st.State != Failed || !math.IsNaN(st.Free) || !math.IsNaN(p.free("bad")) || st.Kind != "" || !st.At.IsZero() {
				t.Errorf("%+v", st)
			}
			if !strings.Contains(st.Err.Error(), c.fails) {
				t.Errorf("the error is %q; want %q in it", st.Err, c.fails)
			}
			if n := sent.Load(); n > 256<<20 {
				t.Errorf("%d bytes were sent", n)
			}
			// It was reported once, not at each poll.
			eventually(t, "both are told", func() bool { return len(ch.all()) == 2 && logs.Len() == 2 })
			if n := logs.FilterField(zap.String("target", "bad")).Len(); n != 1 {
				t.Errorf("logged %d times", n)
			}
			// It recovers by itself.
			bad.says(good)
			eventually(t, "it recovers", func() bool { return p.says("bad", 0.9) })
			if st := p.Status("bad"); st.Err != nil || st.Failures != 0 || st.State != Available {
				t.Errorf("recovered: %+v", st)
			}
		})
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// Each change is logged and reported, and nothing else.
func TestFlapping(t *testing.T) {
	s := newServer(t)
	bodies := []string{`{"occupancy": 0.5}`, "<html>", `{"occupancy": 0.5, "cache_available": false}`,
		`{"occupancy": "?"}`}
	var at atomic.Int64
	s.does(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, bodies[at.Add(1)/3%int64(len(bodies))]) // three times each
	})
	var ch changes
	var polled atomic.Int64
	core, logs := observer.New(zap.DebugLevel)
	c := s.target("a")
	c.Refresh = time.Millisecond
	p := mustNew(t, Config{Targets: []Target{c}, Logger: zap.New(core), Trace: Trace{
		Changed: ch.changed, Polled: func(string, time.Duration, error) { polled.Add(1) },
	}})
	stop := run(t, p)
	eventually(t, "it has flapped", func() bool { return polled.Load() >= 60 })
	stop()
	told := ch.all()
	if n := int(polled.Load()); len(told) < n/3-1 || len(told) > n/3+2 {
		t.Errorf("%d changes in %d polls", len(told), n)
	}
	cycle := []string{"a: failed -> available", "a: available -> failed", "a: failed -> unavailable",
		"a: unavailable -> failed"}
	for i, c := range told {
		want := cycle[i%4]
		if i == 0 {
			want = "a: unknown -> available"
		}
		if c != want {
			t.Fatalf("change %d is %q, want %q", i, c, want)
		}
	}
	if logs.Len() != len(told) {
		t.Errorf("%d log entries for %d changes", logs.Len(), len(told))
	}
	for _, e := range logs.All() {
		f := e.ContextMap()
		if want := f["to"] != "available"; (e.Level == zap.WarnLevel) != want {
			t.Errorf("%v at level %v", f, e.Level)
		}
	}
}

func TestKindsAndHeaders(t *testing.T) {
	s := newServer(t)
	s.does(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" || r.Host != "lmcache.test" || r.Method != http.MethodGet ||
			r.Header.Get("User-Agent") != "warmroute" {
			w.WriteHeader(401)
			return
		}
		switch r.URL.Path {
		case "/status":
			_, _ = io.WriteString(w,
				`{"is_healthy": true, "storage_manager": {"l1_managers": {"x": {"memory_usage_ratio": 0.15}, "y": {"memory_usage_ratio": 0.3}}}}`)
		case "/sick":
			_, _ = io.WriteString(w, `{"is_healthy": false, "storage_manager": {"l1_manager": {"memory_usage_ratio": 0.3}}}`)
		case "/metrics":
			w.WriteHeader(203)
			_, _ = io.WriteString(w,
				"lmcache_mp_l1_usage_ratio{l1_tag=\"x\"} 0.4\nlmcache_mp_l1_usage_ratio{l1_tag=\"y\"} 0.1\n")
		default:
			_, _ = io.WriteString(w, `{"occupancy": 0.3}`)
		}
	})
	core, logs := observer.New(zap.DebugLevel)
	header := http.Header{"authorization": {"Bearer s3cret"}, "Host": {"lmcache.test"}}
	of := func(id, path string, k Kind, watermark float64) Target {
		c := s.target(id)
		c.Endpoint, c.Kind, c.Header, c.Watermark = s.URL+path+"?key=s3cret", k, header, watermark
		return c
	}
	p := mustNew(t, Config{Logger: zap.New(core), Targets: []Target{
		of("any occupancy", "/", KindAny, 0.5), of("any status", "/status", KindAny, 0), of("any metrics", "/metrics",
			KindAny, 0),
		of("occupancy", "/", KindOccupancy, 0), of("status", "/status", KindStatus, 0.9), of("metrics", "/metrics",
			KindMetrics, 0.8),
		of("sick", "/sick", KindAny, 0), of("wrong kind", "/status", KindMetrics, 0),
	}})
	header.Set("authorization", "changed afterwards")
	run(t, p)
	for id, want := range map[string]float64{
		"any occupancy": 0.7, "any status": 0.5, "any metrics": 1 - 0.4/0.6,
		"occupancy": 0.7, "status": 1 - 0.3/0.9, "metrics": 0.5, "sick": -1,
	} {
		eventually(t, fmt.Sprintf("%s: free %v", id, want), func() bool { return p.says(id, want) })
	}
	eventually(t, "the wrong kind fails", func() bool { return p.Status("wrong kind").State == Failed })
	if st := p.Status("sick"); st.State != Unavailable || st.Free != 0 || st.Occupancy != 0.3 {
		t.Errorf("sick: %+v", st)
	}
	var ids []string
	for _, st := range p.Snapshot() {
		ids = append(ids, st.ID)
		if strings.Contains(fmt.Sprintf("%+v", st), "s3cret") {
			t.Errorf("a secret is in %+v", st)
		}
	}
	if diff := cmp.Diff([]string{"any metrics", "any occupancy", "any status", "metrics", "occupancy", "sick", "status",
		"wrong kind"}, ids); diff != "" {
		t.Errorf("Snapshot: (-want +got)\n%s", diff)
	}
	for _, e := range logs.All() {
		if strings.Contains(fmt.Sprint(e.Message, e.ContextMap()), "s3cret") {
			t.Errorf("a secret is in %v", e.ContextMap())
		}
	}
}

// The errors of the network name no URL.
func TestErrorsNameNoSecret(t *testing.T) {
	s := newServer(t)
	c := s.target("a")
	c.Endpoint = strings.Replace(s.URL, "http://", "http://user:s3cret@", 1) + "/?key=s3cret"
	s.Close()
	core, logs := observer.New(zap.DebugLevel)
	p := mustNew(t, Config{Targets: []Target{c}, Logger: zap.New(core)})
	run(t, p)
	eventually(t, "it is logged", func() bool { return logs.Len() == 1 })
	if st := p.Status("a"); st.State != Failed || strings.Contains(fmt.Sprintf("%+v", st), "s3cret") ||
		strings.Contains(fmt.Sprint(logs.All()[0].ContextMap()), "s3cret") {
		t.Errorf("%+v, %v", st, logs.All()[0].ContextMap())
	}
}

// The policy that holds now decides, at the poll and at the dial.
func TestEgressIsAskedAgain(t *testing.T) {
	s := newServer(t)
	a := s.target("a")
	a.Endpoint += "?key=s3cret"
	p := mustNew(t, Config{Targets: []Target{a}})
	run(t, p)
	eventually(t, "it is polled", func() bool { return p.says("a", 0.75) })

	if err := p.SetEgress(egress.Policy{BlockLoopback: true}); err != nil {
		t.Fatal(err)
	}
	denied := func(err error) bool {
		var e *egress.DeniedError
		return errors.As(err, &e) && e.Range == egress.Loopback
	}
	eventually(t, "it is denied", func() bool { return denied(p.Status("a").Err) && math.IsNaN(p.free("a")) })
	n := s.polls.Load()
	before := p.Status("a").Failures
	eventually(t, "it is denied again", func() bool { return p.Status("a").Failures > before+2 })
	if s.polls.Load() != n {
		t.Error("a denied endpoint was polled")
	}
	if err := p.Set([]Target{a}); !denied(err) || strings.Contains(err.Error()+p.Status("a").Err.Error(), "s3cret") ||
		!strings.Contains(err.Error(), `target "a": Targets[0].Endpoint`) {
		t.Errorf("Set: %v", err)
	}
	// What passes the first question is asked again when it is dialled.
	transport := p.client().Transport.(*http.Transport)
	if c, err := transport.DialContext(context.Background(), "tcp", s.Listener.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("a denied address was dialled")
	} else if !denied(err) {
		t.Errorf("dial: %v", err)
	}
	if err := p.SetEgress(egress.Policy{BlockLoopback: true, AllowHosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is allowed", func() bool { return p.says("a", 0.75) })
	if err := p.SetEgress(egress.Policy{AllowHosts: []string{"not a host"}}); err == nil || !p.says("a", 0.75) {
		t.Errorf("a wrong policy: %v", err)
	}
}
