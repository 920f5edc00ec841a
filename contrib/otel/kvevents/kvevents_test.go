package kvevents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contrib/otel"
	"github.com/warmroute/router/contrib/otel/kvevents"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/vllmtest"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// New takes the place of zmqsub.New.
func ExampleNew() {
	vllm := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6, Events: &vllmtest.Events{}})
	defer vllm.Close()
	telemetry, err := otel.New(otel.Config{}) // the global provider's
	if err != nil {
		log.Fatal(err)
	}
	index, err := kvindex.New(kvindex.Config{})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := kvevents.New(telemetry, "", zmqsub.Config{
		Endpoint: vllm.Events().Endpoint(), // as in "tcp://vllm-1:5557"
		Targets:  []zmqsub.Target{{ID: "vllm-1", Replay: vllm.Events().ReplayEndpoint()}},
		Index:    index,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	fmt.Println(sub.Run(ctx))
	// Output:
	// context deadline exceeded
}

// metrics reads what was recorded.
type metrics struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
}

// sum adds up the series of a metric that have the attribute; of a histogram, their
// numbers of observations.
func (m *metrics) sum(name, key, value string) (sum int64) {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		m.t.Fatal(err)
	}
	has := func(s attribute.Set) bool {
		v, ok := s.Value(attribute.Key(key))
		return ok && v.AsString() == value
	}
	for _, s := range all.ScopeMetrics {
		for _, i := range s.Metrics {
			if i.Name != name {
				continue
			}
			switch d := i.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					if has(p.Attributes) {
						sum += p.Value
					}
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					if has(p.Attributes) {
						sum += p.Value
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					if has(p.Attributes) {
						sum += int64(p.Count)
					}
				}
			}
		}
	}
	return sum
}

func (m *metrics) becomes(ok func(int64) bool, name, key, value string) {
	m.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(m.sum(name, key, value)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s of %s=%s is %d", name, key, value, m.sum(name, key, value))
		}
	}
}

func least(n int64) func(int64) bool { return func(v int64) bool { return v >= n } }
func just(n int64) func(int64) bool  { return func(v int64) bool { return v == n } }

// A spill, a dead replica and a gap of two simulated replicas are seen.
func TestFleet(t *testing.T) {
	m := &metrics{t, sdkmetric.NewManualReader()}
	tel := must(otel.New(otel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))}))
	view := must(loadview.New(loadview.Config{Trace: tel.Fleet("f", loadview.Trace{}), CoolBase: time.Hour,
		CoolMax: time.Hour}))
	index := must(kvindex.New(kvindex.Config{}))
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var replicas []*vllmtest.Server
	var members []loadview.Member
	for i := range 2 {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-4, Events: &vllmtest.Events{}})
		replicas = append(replicas, s)
		id := fmt.Sprint("replica-", i)
		members = append(members, loadview.Member{ID: id, Ref: s.URL})
		sub := must(kvevents.New(tel, "f", zmqsub.Config{
			Endpoint: s.Events().Endpoint(), Index: index, Targets: []zmqsub.Target{{ID: id,
				Replay: s.Events().ReplayEndpoint()}},
		}))
		wg.Go(func() { _ = sub.Run(ctx) })
	}
	t.Cleanup(func() {
		stop()
		wg.Wait()
		if n := m.sum("warmroute.event.streams", "warmroute.fleet", "f"); n != 0 {
			t.Errorf("%d streams after the end", n)
		}
		for _, s := range replicas {
			s.Close()
		}
	})
	if err := errors.Join(view.Set(members), tel.WatchFleet("f", view), tel.WatchIndex("kv", index)); err != nil {
		t.Fatal(err)
	}
	r := router.New(must(cacheaware.New(cacheaware.Config{})), view, router.Options{
		Backoff: -1, Trace: tel.Router(otel.Route{Name: "chat", Strategy: cacheaware.Name, Fleet: "f"}, router.Trace{}),
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(ctx context.Context, url string, body []byte) (int, error) {
		req := must(http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body)))
		res, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	chat := func(text string) []byte {
		return must(json.Marshal(map[string]any{"max_tokens": 1,
			"messages": []map[string]string{{"role": "user", "content": text}}}))
	}
	send := func(ctx context.Context, text string) error {
		body := chat(text)
		return r.Do(ctx, must(prompt.FromChat(body)), func(ctx context.Context, l *router.Lease) (o router.Outcome,
			err error) {
			o.Status, err = post(ctx, l.Decision().Target.Ref.(string), body)
			return o, err
		})
	}
	faults := func(f vllmtest.Faults, to ...*vllmtest.Server) {
		t.Helper()
		for _, s := range to {
			if err := s.SetFaults(f); err != nil {
				t.Fatal(err)
			}
		}
	}

	// Streams are live, and events have a lag.
	question := strings.Repeat("When does the first train leave? ", 40)
	for i, s := range replicas {
		must(post(ctx, s.URL, chat(fmt.Sprint(i, question))))
	}
	m.becomes(just(2), "warmroute.event.streams", "warmroute.state", "live")
	m.becomes(func(n int64) bool {
		must(post(ctx, replicas[0].URL, chat(fmt.Sprint(time.Now(), question))))
		return n > 0
	}, "warmroute.event.lag", "warmroute.fleet", "f")
	m.becomes(least(10), "warmroute.index.blocks", "warmroute.index", "kv")

	// A spill.
	faults(vllmtest.Faults{Hang: true}, replicas...)
	sending, cancel := context.WithCancel(ctx)
	var senders sync.WaitGroup
	for range 6 {
		senders.Go(func() { _ = send(sending, question) })
	}
	m.becomes(just(6), "warmroute.attempts.active", "warmroute.route", "chat")
	m.becomes(just(6), "warmroute.target.in_flight", "warmroute.fleet", "f")
	m.becomes(least(1), "warmroute.spills", "warmroute.route", "chat")
	cancel()
	senders.Wait()
	m.becomes(just(6), "warmroute.attempts", "warmroute.outcome", "canceled")
	faults(vllmtest.Faults{}, replicas...)

	// A gap, which a replay fills.
	events := replicas[0].Events()
	events.Drop(func(uint64) bool { return true })
	first := events.Next()
	must(post(ctx, replicas[0].URL, chat("A question whose events are lost. "+question)))
	for end := time.Now().Add(20 * time.Second); events.Next() == first; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the replica published nothing")
		}
	}
	events.Drop(nil)
	must(post(ctx, replicas[0].URL, chat("Another one, whose events come. "+question)))
	m.becomes(least(1), "warmroute.event.gaps", "warmroute.fleet", "f")
	m.becomes(least(1), "warmroute.event.missing", "warmroute.fleet", "f")
	m.becomes(just(2), "warmroute.event.streams", "warmroute.state", "live")

	// A dead replica.
	faults(vllmtest.Faults{Refuse: true}, replicas[0])
	for i := 0; i < 40 && m.sum("warmroute.target.state_changes", "warmroute.state", "cooling") == 0; i++ {
		if err := send(ctx, fmt.Sprint(i, " is a number that nobody has asked about. ", i)); err != nil {
			t.Fatal(err)
		}
	}
	m.becomes(just(1), "warmroute.targets", "warmroute.state", "cooling")
	m.becomes(just(3), "warmroute.retries", "warmroute.cause", "connection")
}
