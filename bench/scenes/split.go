package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/bench/trace"
)

// duty is a workload for replicas that prefill, decode or do both.
type duty struct {
	workload string
	name     string  // in the tables, since other tables have the workload's
	about    float64 // a rate near that which the replicas serve well, requests a second
	ttft     float64 // bound of a good answer, seconds
}

var duties = []duty{
	{"chat", "chats", 60, 2}, {"agents", "agent loops", 40, 2}, {"b2b-saas", "groups", 6, 4},
	{"none", "unshared", 16, 4}, {"reports", "reports", 5, 4}, {"long", "documents", 2, 10},
}

// paces are the bounds of a good answer's time for each token after the first, seconds.
var paces = []float64{0.05, 0.025}

// apart is how the same eight replicas are used.
type apart struct {
	name    string
	prefill int // replicas that prefill alone; 0: all do both
	bound   int // tokens not cached, from which another replica computes the prompt
	budget  int // tokens a step of the replicas that decode; 0: the calibration's
}

// span is the time over which requests of the workloads that are made here arrive, or their first ones, seconds.
const span = 120

// handOver is the time of a token at 25 GB/s: a 70B model has 320 KiB a token.
const handOver = sim.Seconds(13e-6)

const (
	defaultBound = 1024 // disagg's
	smallBudget  = 1024 // tokens a step
)

func arrangements() []apart {
	all := []apart{{name: "both"}, {name: fmt.Sprintf("both, steps of %d", smallBudget), budget: smallBudget}}
	for p := 1; p <= 5; p++ {
		all = append(all, apart{name: fmt.Sprintf("%d + %d", p, 8-p), prefill: p, bound: defaultBound})
	}
	return all
}

// reports are prompts of about 8,000 tokens that share nothing, with answers of about 800.
func reports(rate float64, seed uint64) *trace.Workload {
	r := rand.New(rand.NewPCG(seed, 77))
	w := &trace.Workload{Name: "reports"}
	at := 0.0
	for i := range int(span * rate) {
		at += r.ExpFloat64() / rate
		n := 6000 + r.IntN(4001)
		w.Requests = append(w.Requests, trace.Request{
			Arrival: seconds(at), After: trace.None, Input: n, Output: 600 + r.IntN(401),
			Prompt: []trace.Piece{{ID: trace.ID(seed, uint64(i), 0x7265706f), Tokens: n}},
		})
	}
	return w
}

// talks are conversations that share their beginnings, each turn some time after the answer to the one before it. They
// begin over span, so that their number grows with the rate.
func talks(name string, rate float64, seed uint64, systems, system, fewest, most, says, reply int,
	think float64) *trace.Workload {
	r := rand.New(rand.NewPCG(seed, 78))
	fresh := func(n int) trace.Piece { return trace.Piece{ID: r.Uint64(), Tokens: max(1, n*2/3+r.IntN(n*2/3+1))} }
	shared := make([]trace.Piece, systems)
	for i := range shared {
		shared[i] = trace.Piece{ID: r.Uint64(), Tokens: system}
	}
	w := &trace.Workload{Name: name}
	talks := int(span * rate / float64(fewest+most) * 2)
	at := 0.0
	for i := range talks {
		at += span * r.ExpFloat64() / float64(talks)
		after, prompt := trace.None, []trace.Piece{shared[r.IntN(systems)]}
		for range fewest + r.IntN(most-fewest+1) {
			prompt = append(prompt, fresh(says))
			answer := fresh(reply)
			q := trace.Request{
				Arrival: seconds(at), After: after, Think: seconds(think * r.ExpFloat64()), Session: fmt.Sprint("s", i),
				Prompt: prompt[:len(prompt):len(prompt)], Output: answer.Tokens, Reply: []trace.Piece{answer},
			}
			for _, p := range q.Prompt {
				q.Input += p.Tokens
			}
			after = len(w.Requests)
			w.Requests = append(w.Requests, q)
			prompt = append(prompt, answer)
		}
	}
	return w
}

func (d duty) build(rate float64, seed uint64) (*trace.Workload, error) {
	var w *trace.Workload
	switch d.workload {
	case "reports":
		w = reports(rate, seed)
	case "chat":
		w = talks(d.workload, rate, seed, 20, 2048, 1, 10, 150, 300, 15)
	case "agents":
		w = talks(d.workload, rate, seed, 5, 3000, 8, 40, 400, 80, 1.5)
	default:
		for _, s := range trace.Generated() {
			if s.Name == d.workload {
				return s.Build(rate, seed)
			}
		}
		return nil, fmt.Errorf("no workload %q", d.workload)
	}
	return w, w.Check()
}

// parted are the means of runs.
type parted struct {
	ttft50, ttft99, token50, token99, good, split float64
}

// run plays w once.
func (a apart) run(d duty, pace float64, w *trace.Workload, seed uint64) (parted, error) {
	c := sim.Config{
		Workload: w, Policy: lineStrategies[0], Seed: seed, Scrape: time.Second,
		Good: func(ttft, perToken float64) bool { return ttft <= d.ttft && perToken <= pace },
	}
	c.Calibration = sim.Calibrations()[0]
	if a.budget > 0 {
		c.Calibration.StepTokens = a.budget
	}
	if a.prefill > 0 {
		c.Split = &sim.Split{Prefill: a.prefill, MinUncached: a.bound, Token: handOver}
	}
	r, err := sim.Run(context.Background(), c)
	if err != nil {
		return parted{}, err
	}
	n := float64(r.Requests)
	return parted{r.TTFT.P50, r.TTFT.P99, r.PerToken.P50, r.PerToken.P99, float64(r.Good) / n, float64(r.Split) / n}, nil
}

func (a apart) mean(d duty, pace, rate float64, seeds int) (parted, error) {
	var sum parted
	for seed := range uint64(seeds) {
		w, err := d.build(rate, seed+1)
		if err != nil {
			return sum, err
		}
		r, err := a.run(d, pace, w, seed+1)
		if err != nil {
			return sum, err
		}
		n := float64(seeds)
		sum.ttft50 += r.ttft50 / n
		sum.ttft99 += r.ttft99 / n
		sum.token50 += r.token50 / n
		sum.token99 += r.token99 / n
		sum.good += r.good / n
		sum.split += r.split / n
	}
	return sum, nil
}

// mostly is the share of good answers that a fleet has to keep.
const mostly = 0.95

// capacity returns the greatest rate, to within 5%, up to which mostly all answers are good; 0 if there is none.
func (a apart) capacity(d duty, pace float64, seeds int) (float64, error) {
	good := func(rate float64) (bool, error) {
		p, err := a.mean(d, pace, rate, seeds)
		return p.good >= mostly, err
	}
	low, high := 0.0, 0.0
	for rate := d.about; low == 0 || high == 0; {
		ok, err := good(rate)
		switch {
		case err != nil:
			return 0, err
		case ok:
			low, rate = rate, 1.4*rate
		case rate < d.about/32:
			return 0, nil
		default:
			high, rate = rate, rate/1.4
		}
	}
	for high > 1.05*low {
		mid := (low + high) / 2
		ok, err := good(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}

// splitting prints the tables of prefill and decode on the same or on different replicas: the rate that each
// arrangement serves well, the same with the bound swept at the best ratio, and the times at one rate.
func splitting(out io.Writer, only string, seeds int) error {
	head, line := "| workload | a token within | ", "|---|---|"
	for _, a := range arrangements() {
		head, line = head+a.name+" | ", line+"---|"
	}
	fmt.Fprintln(out, head+"\n"+line)
	type key struct {
		workload string
		pace     float64
	}
	best, both := make(map[key]apart), make(map[key]float64)
	for _, d := range duties {
		if only != "" && only != d.workload {
			continue
		}
		for _, pace := range paces {
			k, most := key{d.workload, pace}, 0.0
			fmt.Fprintf(out, "| %s | %g ms |", d.name, 1e3*pace)
			for _, a := range arrangements() {
				c, err := a.capacity(d, pace, seeds)
				if err != nil {
					return err
				}
				fmt.Fprintf(out, " %.1f |", c)
				switch {
				case a.prefill == 0:
					both[k] = max(both[k], c)
				case c > most:
					most, best[k] = c, a
				}
			}
			fmt.Fprintln(out)
		}
	}
	bounds := []int{0, 256, 1024, 2048, 4096, 8192}
	fmt.Fprint(out, "\n| workload | a token within | replicas | ")
	for _, b := range bounds {
		fmt.Fprintf(out, "%d | ", b)
	}
	fmt.Fprintln(out, "\n|---|---|---|"+strings.Repeat("---|", len(bounds)))
	for _, d := range duties {
		for _, pace := range paces {
			a, ok := best[key{d.workload, pace}]
			if !ok {
				continue
			}
			fmt.Fprintf(out, "| %s | %g ms | %s |", d.name, 1e3*pace, a.name)
			for _, a.bound = range bounds {
				c, err := a.capacity(d, pace, seeds)
				if err != nil {
					return err
				}
				fmt.Fprintf(out, " %.1f |", c)
			}
			fmt.Fprintln(out)
		}
	}
	fmt.Fprintln(out, "\n| workload | rate, 1/s | replicas | TTFT p50, s | p99 | a token p50, ms | p99 | computed elsewhere |"+
		"\n|---|---|---|---|---|---|---|---|")
	for _, d := range duties {
		rate := 0.7 * both[key{d.workload, paces[0]}]
		if rate == 0 {
			continue
		}
		for _, a := range arrangements() {
			p, err := a.mean(d, paces[0], rate, seeds)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %s | %.1f | %s | %.2f | %.1f | %.1f | %.1f | %.0f%% |\n", d.name, rate, a.name, p.ttft50,
				p.ttft99, 1e3*p.token50, 1e3*p.token99, 100*p.split)
		}
	}
	return nil
}
