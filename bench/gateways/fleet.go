package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/vllmtest"
)

// fleet is gateways over a bus, and engines.
type fleet struct {
	bus      *aBus
	links    [][]*link // by gateway: its wires to the bus; none unless there are to be faults
	engines  []*vllmtest.Server
	gateways []*gateway
	dir      string
}

// newFleet starts n gateways. With wires, each reaches the bus through links of its own.
func (o *options) newFleet(ctx context.Context, kind string, n int, wires bool) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.dir, err = os.MkdirTemp("", "fleet"); err != nil {
		return f, err
	}
	program, err := o.gatewayProgram(ctx)
	if err != nil {
		return f, err
	}
	if f.bus, err = o.newBus(ctx, kind, n); err != nil {
		return f, err
	}
	if wires {
		if err := f.wire(); err != nil {
			return f, err
		}
	}
	var urls []string
	for range replicas {
		e, err := vllmtest.New(vllmtest.Config{TimeScale: o.scale})
		if err != nil {
			return f, err
		}
		f.engines = append(f.engines, e)
		urls = append(urls, e.URL)
	}
	for i := range n {
		g, err := newGateway(i, program, f.dir, urls, &f.bus.specs[i])
		if err != nil {
			return f, err
		}
		f.gateways = append(f.gateways, g)
		if err := g.start(ctx); err != nil {
			return f, err
		}
	}
	_, err = f.together(ctx, time.Minute)
	return f, err
}

// wire puts links between each gateway and the bus. NATS servers pass on each other's addresses, and connect past the
// links: so those within the gateways listen on addresses that their certificate is not for.
func (f *fleet) wire() error {
	for i := range f.bus.specs {
		s := &f.bus.specs[i]
		if s.Kind != embedded {
			continue
		}
		_, port, err := net.SplitHostPort(s.Cluster)
		if err != nil {
			return err
		}
		s.Cluster, s.TLS = net.JoinHostPort(fmt.Sprintf("127.0.1.%d", i+1), port), f.dir
	}
	if err := writeCertificate(f.dir); err != nil {
		return err
	}
	for i := range f.bus.specs {
		s := &f.bus.specs[i]
		to, ends := s.Addrs, &s.Addrs
		if s.Kind == embedded {
			to, ends = nil, &s.Peers
			for k := range f.bus.specs {
				if k != i {
					to = append(to, f.bus.specs[k].Cluster)
				}
			}
		}
		var all []*link
		var addrs []string
		for _, a := range to {
			l, err := newLink(a)
			if err != nil {
				return err
			}
			all, addrs = append(all, l), append(addrs, l.addr)
		}
		f.links, *ends = append(f.links, all), addrs
	}
	return nil
}

// part puts the wires between the first k gateways and the others, or the servers apart, into a state; those of all if
// k is their number. Other wires are as they should be.
func (f *fleet) part(k int, s state) {
	inside := map[string]bool{} // the addresses of those that are cut off
	for i := range k {
		inside[f.bus.specs[i].Cluster] = true
	}
	for i, links := range f.links {
		for _, l := range links {
			across := i < k
			if f.bus.kind == embedded {
				across = (i < k) != inside[l.to] || k == len(f.links)
			}
			if across {
				l.set(s)
			} else {
				l.set(state{})
			}
		}
	}
}

func (f *fleet) close() {
	var wg sync.WaitGroup
	for _, g := range f.gateways {
		if g.cmd != nil {
			wg.Go(g.stop)
		}
	}
	wg.Wait()
	for _, links := range f.links {
		for _, l := range links {
			l.close()
		}
	}
	for _, e := range f.engines {
		e.Close()
	}
	if f.bus != nil {
		f.bus.close()
	}
	_ = os.RemoveAll(f.dir)
}

func (o *options) gatewayProgram(ctx context.Context) (string, error) {
	if o.gateway != "" {
		return o.gateway, nil
	}
	if o.started.gateway == "" {
		dir, err := o.started.folder()
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "gateway")
		if err := loadgen.Build(ctx, path, loadgen.Gateway, ""); err != nil {
			return "", err
		}
		o.started.gateway = path
	}
	return o.started.gateway, nil
}

func (f *fleet) urls() []string {
	var all []string
	for _, g := range f.gateways {
		all = append(all, g.url)
	}
	return all
}

// shares reports whether there is a bus.
func (f *fleet) shares() bool { return f.bus.kind != "none" }

// together waits until each gateway counts all others, and returns how long that took.
func (f *fleet) together(ctx context.Context, most time.Duration) (time.Duration, error) {
	start := time.Now()
	if !f.shares() {
		return 0, nil
	}
	for {
		var missing error
		for i, g := range f.gateways {
			v, err := g.view(ctx)
			switch {
			case err != nil:
				missing = err
			case !v.connected || !v.joined || !v.load || v.counted != len(f.gateways)-1:
				missing = fmt.Errorf("gateway %d: connected %t, joined %t, load %t, %d of %d counted: %s", i, v.connected,
					v.joined, v.load, v.counted, len(f.gateways)-1, g.tail.String())
			}
			if missing != nil {
				break
			}
		}
		took := time.Since(start)
		if missing == nil {
			return took, nil
		}
		if took > most || ctx.Err() != nil {
			return took, errors.Join(fmt.Errorf("the views are not together after %v: %w", took, missing), ctx.Err())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// counted returns how many others a gateway counts the load of, in the mean of those that answer at once.
func (f *fleet) counted(ctx context.Context) float64 {
	sum, n := 0, 0
	for _, g := range f.gateways {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		v, err := g.view(soon)
		cancel()
		if err != nil {
			continue // it is gone, or stands still
		}
		n++
		if v.load {
			sum += v.counted
		}
	}
	return float64(sum) / float64(max(n, 1))
}

// cpu returns the processor time of all gateways, and that of the servers apart.
func (f *fleet) cpu() (gateways, servers time.Duration, err error) {
	for _, g := range f.gateways {
		d, err := loadgen.CPU(g.cmd.Process.Pid)
		if err != nil {
			return 0, 0, err
		}
		gateways += d
	}
	servers, err = f.bus.cpu()
	return gateways, servers, err
}

// ranks asks a gateway how much of a conversation each engine has, as it believes, by engine.
func (g *gateway) ranks(ctx context.Context, messages []workload.Message) (map[string]int, error) {
	body, err := json.Marshal(map[string]any{"model": "bench", "messages": messages})
	if err != nil {
		return nil, err
	}
	try, err := json.Marshal(map[string]string{"route": "*", "path": "/v1/chat/completions", "body": string(body)})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.page+"/explain", bytes.NewReader(try))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var ranked struct {
		Candidates []struct {
			Target string
			Cached int
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&ranked); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || len(ranked.Candidates) == 0 {
		return nil, fmt.Errorf("explain: status %d", resp.StatusCode)
	}
	all := map[string]int{}
	for _, c := range ranked.Candidates {
		all[c.Target] = c.Cached
	}
	return all, nil
}

// alike compares the gateways' views of conversations: the share of (conversation, engine) pairs in which all gateways
// believe the same to within a KiB, of the pairs of which any believes anything.
func (f *fleet) alike(ctx context.Context, conversations [][]workload.Message) (same float64, worst int, err error) {
	pairs, good := 0, 0
	for _, m := range conversations {
		least, most := map[string]int{}, map[string]int{}
		for i, g := range f.gateways {
			all, err := g.ranks(ctx, m)
			if err != nil {
				return 0, 0, err
			}
			for t, n := range all {
				if i == 0 {
					least[t] = n
				}
				least[t], most[t] = min(least[t], n), max(most[t], n)
			}
		}
		for t := range most {
			if most[t] == 0 {
				continue
			}
			pairs++
			if most[t]-least[t] <= 1<<10 {
				good++
			}
			worst = max(worst, most[t]-least[t])
		}
	}
	return float64(good) / float64(max(pairs, 1)), worst, nil
}

// alikeAgain waits until all gateways believe the same of conversations, and returns how long that took.
func (f *fleet) alikeAgain(ctx context.Context, conversations [][]workload.Message) (time.Duration, error) {
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		same, worst, err := f.alike(ctx, conversations)
		took := time.Since(start)
		if err != nil || same == 1 {
			return took, err
		}
		if took > time.Minute {
			return took, fmt.Errorf("after %v the views are alike in %.3f, and two differ by %d bytes", took, same, worst)
		}
	}
}

// fleetRow is one row of fleetTable.
type fleetRow struct {
	summary
	lag50, lag99      time.Duration // lag
	gateways, servers time.Duration // processor time
	frames, bytes     float64       // a request
	same              float64
	losses            string
	stall             time.Duration // by how much a sleep is too long, the 99th percentile
}

// measureFleet runs clients against a fleet.
func (o *options) measureFleet(ctx context.Context, kind string, n int) (*fleetRow, error) {
	row := &fleetRow{}
	f, err := o.newFleet(ctx, kind, n, false)
	if err != nil {
		return nil, err
	}
	defer f.close()
	c := newClients(f.urls(), o)
	defer c.http.CloseIdleConnections()
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(running)
	}()
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	if err := wait(o.warm); err != nil {
		return nil, err
	}
	gateways, servers, err := f.cpu()
	if err != nil {
		return nil, err
	}
	var before, after []*view
	views := func() (all []*view, err error) {
		for _, g := range f.gateways {
			if !f.shares() {
				return nil, nil
			}
			v, err := g.view(ctx)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
	if before, err = views(); err != nil {
		return nil, err
	}
	stalls := watchStalls()
	var p50s, p99s []uint32
	for end := time.Now().Add(o.measure); time.Now().Before(end); {
		if err := wait(min(time.Second, time.Until(end))); err != nil {
			return nil, err
		}
		if after, err = views(); err != nil {
			return nil, err
		}
		for _, v := range after {
			p50s, p99s = append(p50s, uint32(v.p50.Microseconds())), append(p99s, uint32(v.p99.Microseconds()))
		}
	}
	measured := time.Since(c.begun)
	row.stall = stalls()
	g, s, err := f.cpu()
	if err != nil {
		return nil, err
	}
	stop()
	<-ended
	row.summary = c.between(o.warm, measured)
	row.gateways, row.servers = g-gateways, s-servers
	row.lag50, row.lag99 = quantile(p50s, 0.5), quantile(p99s, 0.99)
	lost := map[string]float64{}
	for i, v := range after {
		row.frames += v.sent - before[i].sent
		row.bytes += v.bytes - before[i].bytes
		for cause, n := range v.losses {
			lost[cause] += n
		}
	}
	row.losses = "0"
	var some []string
	for cause, n := range lost {
		if n > 0 {
			some = append(some, fmt.Sprintf("%s %.0f", cause, n))
		}
	}
	if len(some) > 0 {
		slices.Sort(some)
		row.losses = strings.Join(some, ", ")
	}
	if f.shares() && n > 1 {
		if _, err := f.together(ctx, time.Minute); err != nil {
			return nil, err
		}
		if row.same, _, err = f.alike(ctx, c.sample(looked)); err != nil {
			return nil, err
		}
	}
	return row, nil
}

// watchStalls measures how much longer than asked for this process sleeps, until the 99th percentile is asked for: a
// machine with too much to do makes gateways slow, too.
func watchStalls() (p99 func() time.Duration) {
	var all samples
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			start := time.Now()
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				all.add((time.Since(start) - 5*time.Millisecond).Microseconds())
			}
		}
	}()
	return func() time.Duration {
		close(done)
		<-ended
		return quantile(all.all(), 0.99)
	}
}

// quietest measures up to o.repeat times, until the machine did not stall by more than o.stall, and returns the
// measurement with the least.
func (o *options) quietest(ctx context.Context, kind string, n int) (*fleetRow, error) {
	var best *fleetRow
	for range max(o.repeat, 1) {
		r, err := o.measureFleet(ctx, kind, n)
		if err != nil {
			return nil, err
		}
		if best == nil || r.stall < best.stall {
			best = r
		}
		if r.stall <= o.stall {
			break
		}
	}
	return best, nil
}

// looked is how many conversations the gateways' views are compared of.
const looked = 40

// sample returns the last n conversations that have ended.
func (c *clients) sample(n int) [][]workload.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.last[max(0, len(c.last)-n):])
}

// fleetTable measures gateways in front of engines: one, several that share nothing, several on each bus.
func fleetTable(ctx context.Context, o *options) error {
	fmt.Fprintf(o.out, "\n%.0f requests a second in conversations of 1 to %d turns, %d system prompts of %d KiB, replies of "+
		"%d tokens, %d engines at %g of their time:\n\n", o.rate, maxTurns, o.systems,
		o.prefix>>10, o.tokens, replicas, o.scale)
	fmt.Fprintln(o.out, "| gateways | bus | requests | lost | cached | TTFT mean ms | p99 ms | lag p50 ms | p99 ms | "+
		"views alike | frames, bytes a request | frames lost | CPU us a request: gateways | server | stall p99 ms |")
	fmt.Fprintln(o.out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	one := func(n int, kind string) error {
		r, err := o.quietest(ctx, kind, n)
		if err != nil {
			return fmt.Errorf("%d gateways, %s: %w", n, kind, err)
		}
		if r.err != nil {
			fmt.Fprintln(os.Stderr, "lost:", r.err)
		}
		shared := []string{"", "", "", "", ""}
		if kind != "none" {
			k := float64(max(r.requests, 1))
			shared = []string{ms(r.lag50), ms(r.lag99), fmt.Sprintf("%.3f", r.same),
				fmt.Sprintf("%.1f, %.0f", r.frames/k, r.bytes/k), r.losses}
		}
		fmt.Fprintf(o.out, "| %d | %s | %d | %d | %.3f | %.1f | %.0f | %s | %s | %s | %s |\n", n, kind, r.requests, r.lost,
			r.cached, float64(r.mean)/1e6, float64(r.p99)/1e6, strings.Join(shared, " | "), each(r.gateways, r.requests),
			each(r.servers, r.requests), ms(r.stall))
		return nil
	}
	if slices.Contains(o.buses, "none") {
		if err := one(1, "none"); err != nil {
			return err
		}
	}
	for _, n := range o.gateways {
		for _, kind := range o.buses {
			if err := one(n, kind); err != nil {
				return err
			}
		}
	}
	return nil
}
