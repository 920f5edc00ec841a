package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/internal/workload"
)

const engineCount = 8

// rig is a router and the engines behind it, each in a process of its own.
type rig struct {
	engines, router *loadgen.Process
	urls            []string // the engines'
	url             string   // the router's
}

// newRig starts engines that answer after delay, and the router that command
// returns for the address to listen on and the engines' URLs.
func newRig(ctx context.Context, delay time.Duration, command func(addr string, engines []string) []string) (*rig,
	error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := new(rig)
	r.engines, r.urls, err = loadgen.StartEnginesProcess(engineCount, exe, "-serve-engines", strconv.Itoa(engineCount),
		"-delay", delay.String())
	if err != nil {
		return nil, err
	}
	addr, err := ports.Free()
	if err != nil {
		r.stop()
		return nil, err
	}
	r.url = "http://" + addr
	argv := command(addr, r.urls)
	if r.router, err = loadgen.Start(argv[0], argv[1:]...); err != nil {
		r.stop()
		return nil, err
	}
	up, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.router.Await(up, r.url+"/healthz"); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

func (r *rig) stop() {
	if r.router != nil {
		r.router.Stop()
	}
	r.engines.Stop()
}

// gatewayCommand returns how to start the gateway binary at path.
func gatewayCommand(path, strategy string, flags ...string) func(string, []string) []string {
	return func(addr string, engines []string) []string {
		argv := []string{path, "-listen", addr, "-strategy", strategy, "-drain-delay", "0s", "-grace", "1s"}
		for _, u := range engines {
			argv = append(argv, "-target", u)
		}
		return append(argv, flags...)
	}
}

// proxyCommand starts this program as a plain reverse proxy: the cost of
// forwarding alone with the standard library.
func proxyCommand(exe string) func(string, []string) []string {
	return func(addr string, engines []string) []string {
		return append([]string{exe, "-serve-proxy", addr}, engines...)
	}
}

// gatewayRows builds the gateway and measures it.
func gatewayRows(t *table, o *options) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// When interrupted, it still ends its processes.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	path := o.gateway
	if path == "" {
		dir, err := os.MkdirTemp("", "budget")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		path = filepath.Join(dir, "gateway")
		t.say("gateway: building")
		if err := loadgen.Build(ctx, path, loadgen.Gateway, ""); err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := gatewayCost(ctx, t, o, gatewayCommand(path, "cache_aware"), proxyCommand(exe)); err != nil {
		return err
	}
	if err := gatewayCaches(ctx, t, o, gatewayCommand(path, "cache_aware")); err != nil {
		return err
	}
	if err := gatewayLeastWork(ctx, t, o, path); err != nil {
		return err
	}
	return gatewayIdle(ctx, t, gatewayCommand(path, "cache_aware"))
}

// cost is the cost that a router adds to requests.
type cost struct {
	through, direct time.Duration // p50 at one client
	added           time.Duration // p50 of the differences of requests that follow each other
	cpu             map[int]time.Duration
	rate            map[int]float64
	rss             int64
	unmeasured      error // why cpu and rss are not known: they need Linux
}

// costOf drives streamed chats of about 14 KB through a router: one client that
// sends each request through it and to an engine directly, by turns, then more
// clients through it alone.
func costOf(ctx context.Context, o *options, command func(string, []string) []string) (cost, error) {
	c := cost{cpu: make(map[int]time.Duration), rate: make(map[int]float64)}
	g, err := newRig(ctx, 0, command)
	if err != nil {
		return c, err
	}
	defer g.stop()
	var requests []workload.Request
	for _, r := range o.chat.Requests {
		if n := o.chat.Size(r); n > 12_500 && n < 15_500 {
			requests = append(requests, r)
		}
	}
	through, direct := loadgen.NewClient(g.url, o.chat.Workload), loadgen.NewClient(g.urls[0], o.chat.Workload)
	defer through.Close()
	defer direct.Close()
	const warm, pairs, load = 400, 600, 3000
	if _, err := loadgen.Run(ctx, requests[:warm], 16, through.Send); err != nil {
		return c, err
	}
	a, b := newSamples(pairs), newSamples(pairs)
	var diff []time.Duration
	for i, r := range requests[warm : warm+pairs] {
		var took [2]time.Duration
		for k := range 2 {
			which := (i + k) % 2 // each goes first as often as the other
			client := []*loadgen.Client{through, direct}[which]
			start := time.Now()
			if _, err := client.Send(ctx, r); err != nil {
				return c, err
			}
			took[which] = time.Since(start)
		}
		a.add(took[0])
		b.add(took[1])
		diff = append(diff, took[0]-took[1])
	}
	slices.Sort(diff)
	c.through, c.direct, c.added = a.p(.5), b.p(.5), quantile(diff, .5)
	for _, clients := range []int{16, 64} {
		before, err := g.router.CPU()
		c.unmeasured = errors.Join(c.unmeasured, err)
		start := time.Now()
		n := 0
		for n < load { // the list is shorter than the load
			part := requests[:min(len(requests), load-n)]
			if _, err := loadgen.Run(ctx, part, clients, through.Send); err != nil {
				return c, err
			}
			n += len(part)
		}
		took := time.Since(start)
		after, err := g.router.CPU()
		c.unmeasured = errors.Join(c.unmeasured, err)
		c.cpu[clients] = (after - before) / time.Duration(n)
		c.rate[clients] = float64(n) / took.Seconds()
	}
	c.rss, err = g.router.RSS()
	c.unmeasured = errors.Join(c.unmeasured, err)
	return c, nil
}

// gatewayCost is the row of a request's cost, with a plain reverse proxy for
// comparison.
func gatewayCost(ctx context.Context, t *table, o *options, command, plain func(string, []string) []string) error {
	t.say("gateway: cost of a request")
	g, err := costOf(ctx, o, command)
	if err != nil {
		return err
	}
	p, err := costOf(ctx, o, plain)
	if err != nil {
		return err
	}
	const most = 190 * time.Microsecond
	worst := max(g.cpu[16], g.cpu[64])
	const what = "gateway, 14 KB streamed chat, CPU a request"
	if g.unmeasured != nil {
		t.reading(what, "not measured: %v", g.unmeasured)
	} else {
		t.check(what, "<= 190 us", worst <= most,
			"%.0f us at 16 clients, %.0f us at 64 (a plain reverse proxy: %.0f, %.0f us)",
			us(g.cpu[16]), us(g.cpu[64]), us(p.cpu[16]), us(p.cpu[64]))
	}
	t.check("  added at one client, p50", "<= 0.30 ms", g.added <= 300*time.Microsecond,
		"%.2f ms: %.2f ms, %.2f ms direct (a plain reverse proxy adds %.2f ms)", ms(g.added), ms(g.through), ms(g.direct),
		ms(p.added))
	t.reading("  requests a second",
		"%.0f at 16 clients, %.0f at 64 (a plain reverse proxy: %.0f, %.0f), engines and clients on the same cores",
		g.rate[16], g.rate[64], p.rate[16], p.rate[64])
	t.reading("  memory", "%.0f MB resident at the most (a plain reverse proxy: %.0f MB)", float64(g.rss)/1e6,
		float64(p.rss)/1e6)
	return nil
}

// play has the results of the first 6,000 requests of chat.
type play struct {
	loadgen.Verdict
	took        time.Duration
	least, most float64 // shares of turns that stay, of all runs
	runs        int
}

// middle plays the first 6,000 requests of chat. How closely clients follow each
// other differs from run to run, and with it how many turns find their engine
// overloaded: of three runs, each with a gateway that knows nothing yet, the one
// with the middle share of turns that stay counts.
func middle(ctx context.Context, o *options, command func(string, []string) []string) (play, error) {
	var runs []play
	for range 3 {
		v, took, err := caches(ctx, o, command)
		if err != nil {
			return play{}, err
		}
		runs = append(runs, play{Verdict: v, took: took})
	}
	slices.SortFunc(runs, func(a, b play) int { return cmp.Compare(a.Stayed, b.Stayed) })
	r := runs[len(runs)/2]
	r.least, r.most, r.runs = runs[0].Stayed, runs[len(runs)-1].Stayed, len(runs)
	return r, nil
}

// gatewayCaches is the row of cache_aware's routing under load.
func gatewayCaches(ctx context.Context, t *table, o *options, command func(string, []string) []string) error {
	t.say("gateway: caches, 64 clients")
	v, err := middle(ctx, o, command)
	if err != nil {
		return err
	}
	t.check("gateway, cache_aware, 64 clients: cached bytes", ">= 0.82", v.Cached >= .82,
		"%.3f of %.3f that one infinite cache would have", v.Cached, v.Ideal)
	t.check("  requests, max/mean", "<= 1.05", v.MaxOverMean <= 1.05, "%.3f %v", v.MaxOverMean, v.Requests)
	t.check("  turns that stay", ">= 0.82", v.Stayed >= .82, "%.3f (%.3f to %.3f in %d runs)", v.Stayed, v.least,
		v.most, v.runs)
	t.reading("  the run", "6,000 requests in %.1f s, %.0f a second", v.took.Seconds(), 6000/v.took.Seconds())
	return nil
}

// gatewayLeastWork is the same for least_work, and for other constants than its
// own.
func gatewayLeastWork(ctx context.Context, t *table, o *options, path string) error {
	t.say("gateway: least_work, 64 clients")
	v, err := middle(ctx, o, gatewayCommand(path, "least_work"))
	if err != nil {
		return err
	}
	t.check("gateway, least_work (5, 0.2), 64 clients: cached bytes", ">= 0.868", v.Cached >= .868,
		"%.3f of %.3f that one infinite cache would have", v.Cached, v.Ideal)
	t.check("  requests, max/mean", "<= 1.10", v.MaxOverMean <= 1.10, "%.3f %v", v.MaxOverMean, v.Requests)
	t.check("  turns that stay", ">= 0.99", v.Stayed >= .99, "%.3f (%.3f to %.3f in %d runs)", v.Stayed, v.least,
		v.most, v.runs)
	for _, c := range [][2]string{{"3", "0.2"}, {"8", "0.2"}, {"5", "0.1"}, {"5", "0.4"}} {
		v, _, err := caches(ctx, o, gatewayCommand(path, "least_work", "-miss-weight", c[0], "-context-weight", c[1]))
		if err != nil {
			return err
		}
		t.reading("  with "+c[0]+" and "+c[1], "cached %.3f, max/mean %.3f, stay %.3f", v.Cached, v.MaxOverMean, v.Stayed)
	}
	return nil
}

func caches(ctx context.Context, o *options, command func(string, []string) []string) (loadgen.Verdict,
	time.Duration, error) {
	g, err := newRig(ctx, 20*time.Millisecond, command)
	if err != nil {
		return loadgen.Verdict{}, 0, err
	}
	defer g.stop()
	client := loadgen.NewClient(g.url, o.chat.Workload)
	defer client.Close()
	start := time.Now()
	sent, err := loadgen.Run(ctx, o.chat.Requests[:6000], 64, client.Send)
	if err != nil {
		return loadgen.Verdict{}, 0, err
	}
	took := time.Since(start)
	return loadgen.Judge(o.chat.Workload, sent, engineCount), took, nil
}

// gatewayIdle is the row of the routing of system prompts on an idle fleet:
// those that differ from the start, and those with the same beginning.
func gatewayIdle(ctx context.Context, t *table, command func(string, []string) []string) error {
	for _, opening := range []int{0, 200} {
		t.say("gateway: an idle fleet, system prompts with %d bytes in common", opening)
		v, err := idle(ctx, workload.Chat(workload.ChatConfig{Opening: opening}), command)
		if err != nil {
			return err
		}
		t.check(fmt.Sprintf("gateway, one client, %d bytes in common", opening), "20 system prompts on > 1 engine",
			v.Openings > 1,
			"on %d of %d engines; max/mean %.2f, cached %.3f of %.3f", v.Openings, engineCount, v.MaxOverMean, v.Cached, v.Ideal)
	}
	return nil
}

func idle(ctx context.Context, w *workload.Workload, command func(string, []string) []string) (loadgen.Verdict, error) {
	g, err := newRig(ctx, 0, command)
	if err != nil {
		return loadgen.Verdict{}, err
	}
	defer g.stop()
	client := loadgen.NewClient(g.url, w)
	defer client.Close()
	sent, err := loadgen.Run(ctx, w.Requests[:600], 1, client.Send)
	if err != nil {
		return loadgen.Verdict{}, err
	}
	return loadgen.Judge(w, sent, engineCount), nil
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
