package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/internal/workload"
)

// model is the name that the workload's requests give.
const model = "bench"

// result has the measurements of a router over the rounds.
type result struct {
	runs     []figures
	failures []error
	slow     bool // judging its caches took too long to do it again
}

// figures are one round of one router, by metric.
type figures struct {
	round  int
	slow   bool
	values [metrics]float64 // NaN if it was not measured
}

// The measurements of a round. Times are in milliseconds unless noted.
const (
	mAdded = iota
	mEnd50
	mEnd99
	mEndQuick
	mEvents
	mEventsQuick
	mSilence
	mSilenceDirect
	mSilenceQuick
	mRate16
	mRate64
	mCPU16
	mCPU64
	mCached
	mMaxMean
	mStayed
	mRSS
	mStart
	metrics
)

// rig is a router that runs before engines.
type rig struct {
	engines *loadgen.Process
	urls    []string
	router  *process
	url     string
	took    time.Duration // until it was ready
}

func newRig(ctx context.Context, p peer, dir string, delay time.Duration) (*rig, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := new(rig)
	if r.engines, r.urls, err = loadgen.StartEnginesProcess(engineCount, exe, "-serve-engines",
		fmt.Sprint(engineCount)); err != nil {
		return nil, err
	}
	fail := func(err error) (*rig, error) {
		r.stop()
		return nil, err
	}
	if err := setMode(r.urls[0], delay, 0); err != nil {
		return fail(err)
	}
	addr, err := ports.Free()
	if err != nil {
		return fail(err)
	}
	home, err := os.MkdirTemp(dir, "home")
	if err != nil {
		return fail(err)
	}
	argv, env, err := p.command(addr, r.urls, home)
	if err != nil {
		return fail(err)
	}
	start := time.Now()
	if r.router, err = startProcess(argv, env, home); err != nil {
		return fail(err)
	}
	r.url = "http://" + addr
	up, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := r.router.await(up, r.url+p.ready, p.says); err != nil {
		return fail(fmt.Errorf("starting: %w", err))
	}
	r.took = time.Since(start)
	return r, nil
}

func (r *rig) stop() {
	if r.router != nil {
		r.router.stop()
	}
	r.engines.Stop()
}

// measure is one round of one router, without its caches if that is slow.
func measure(ctx context.Context, p peer, chat *workload.Workload, dir string, slow bool) (figures, error) {
	var m figures
	for i := range m.values {
		m.values[i] = math.NaN()
	}
	if err := cost(ctx, p, chat, dir, &m); err != nil || slow {
		return m, err
	}
	start := time.Now()
	err := caches(ctx, p, chat, dir, &m)
	m.slow = time.Since(start) > tooLong
	return m, err
}

// Sizes of a round. Each part that a router can stretch is bounded in time too.
const (
	warm    = 400
	pairs   = 400
	load    = 3000
	batch   = 500 // of load, between two looks at the time
	cached  = 6000
	perPart = 4 * time.Second
	tooLong = 15 * time.Second
)

// cost measures the latency that a router adds to a request, with engines that answer
// immediately.
func cost(ctx context.Context, p peer, chat *workload.Workload, dir string, m *figures) error {
	r, err := newRig(ctx, p, dir, 0)
	if err != nil {
		return err
	}
	defer r.stop()
	m.values[mStart] = r.took.Seconds()
	var requests []workload.Request
	for _, q := range chat.Requests {
		if n := chat.Size(q); n > 12_500 && n < 15_500 {
			requests = append(requests, q)
		}
	}
	through := loadgen.NewClient(r.url, chat)
	defer through.Close()
	if _, err := loadgen.Run(ctx, requests[:warm], 16, through.Send); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	one := requests[warm : warm+pairs]
	t, err := replies(ctx, chat, one, r.url, r.urls[0], false)
	if err != nil {
		return fmt.Errorf("one client: %w", err)
	}
	m.values[mAdded], m.values[mEnd50], m.values[mEnd99] = ms(quantile(t.added, .5)), ms(quantile(t.through, .5)),
		ms(quantile(t.through, .99))
	if t, err = replies(ctx, chat, one[:pairs/2], r.url, r.urls[0], true); err != nil {
		return fmt.Errorf("one client that acknowledges at once: %w", err)
	}
	m.values[mEndQuick] = ms(quantile(t.through, .5))
	for _, clients := range []int{16, 64} {
		before, err := r.router.usage()
		if err != nil {
			return err
		}
		start := time.Now()
		n := 0
		for n < load && time.Since(start) < perPart {
			at := n % (len(requests) - batch) // the list is shorter than the load
			part := requests[at : at+batch]
			if _, err := loadgen.Run(ctx, part, clients, through.Send); err != nil {
				return fmt.Errorf("%d clients: %w", clients, err)
			}
			n += len(part)
		}
		took := time.Since(start)
		after, err := r.router.usage()
		if err != nil {
			return err
		}
		i := map[int]int{16: 0, 64: 1}[clients]
		m.values[mRate16+i] = float64(n) / took.Seconds()
		m.values[mCPU16+i] = float64((after.cpu - before.cpu).Microseconds()) / float64(n)
	}
	u, err := r.router.usage()
	if err != nil {
		return err
	}
	m.values[mRSS] = float64(u.rss) / 1e6

	// Replies event by event, as a model makes them. Nor does it begin before the
	// request is through; the standard library's proxy would lose such a reply.
	if err := setMode(r.urls[0], 5*time.Millisecond, 3*time.Millisecond); err != nil {
		return err
	}
	if t, err = replies(ctx, chat, one[:30], r.url, r.urls[0], false); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	m.values[mEvents] = ms(quantile(t.added, .5))
	m.values[mSilence], m.values[mSilenceDirect] = ms(quantile(t.silence, .5)), ms(quantile(t.silenceDirect, .5))
	if t, err = replies(ctx, chat, one[:20], r.url, r.urls[0], true); err != nil {
		return fmt.Errorf("events, to a client that acknowledges at once: %w", err)
	}
	m.values[mEventsQuick], m.values[mSilenceQuick] = ms(quantile(t.added, .5)), ms(quantile(t.silence, .5))
	return nil
}

// caches measures the routing of a router without knowledge, with engines that
// take 20 ms.
func caches(ctx context.Context, p peer, chat *workload.Workload, dir string, m *figures) error {
	r, err := newRig(ctx, p, dir, 20*time.Millisecond)
	if err != nil {
		return err
	}
	defer r.stop()
	client := loadgen.NewClient(r.url, chat)
	defer client.Close()
	sent, err := loadgen.Run(ctx, chat.Requests[:cached], 64, client.Send)
	if err != nil {
		return fmt.Errorf("caches: %w", err)
	}
	v := loadgen.Judge(chat, sent, engineCount)
	m.values[mCached], m.values[mMaxMean], m.values[mStayed] = v.Cached, v.MaxOverMean, v.Stayed
	u, err := r.router.usage()
	if err != nil {
		return err
	}
	m.values[mRSS] = max(m.values[mRSS], float64(u.rss)/1e6)
	return nil
}

// times are those of replies to one client, sorted.
type times struct {
	through, direct        []time.Duration
	added                  []time.Duration // through less direct, of requests that follow each other
	silence, silenceDirect []time.Duration // the longest between two parts of each reply
}

// replies sends each request through the router and to an engine, by turns, and
// times it to the end of its reply.
func replies(ctx context.Context, w *workload.Workload, requests []workload.Request, router, engine string,
	quick bool) (times, error) {
	a, b := newClient(router, quick), newClient(engine, quick)
	defer a.close()
	defer b.close()
	var t times
	var body []byte
	start := time.Now()
	for i, r := range requests {
		if i >= 20 && time.Since(start) > perPart {
			break
		}
		body = w.AppendBody(body[:0], r, true)
		var took [2]reply
		for k := range 2 {
			which := (i + k) % 2 // each goes first as often as the other
			var err error
			if took[which], err = []*client{a, b}[which].send(ctx, body); err != nil {
				return t, err
			}
		}
		if i < 2 {
			continue // they made the connections
		}
		t.through, t.direct = append(t.through, took[0].took), append(t.direct, took[1].took)
		t.added = append(t.added, took[0].took-took[1].took)
		t.silence, t.silenceDirect = append(t.silence, took[0].silence), append(t.silenceDirect, took[1].silence)
	}
	for _, d := range [][]time.Duration{t.through, t.direct, t.added, t.silence, t.silenceDirect} {
		slices.Sort(d)
	}
	return t, nil
}

// quantile returns the q-th quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
