package sim

import (
	"cmp"
	"math"
	"slices"
)

// Study has the results of a set of runs: the data of tables, pages and
// comparisons.
type Study struct {
	Command     string         `json:"command"` // that makes it again
	Calibration Calibration    `json:"calibration"`
	Replicas    int            `json:"replicas"`
	Seeds       []uint64       `json:"seeds"`
	Workloads   []WorkloadInfo `json:"workloads"`
	Policies    []PolicyInfo   `json:"policies"`
	// Cells are in the order of Workloads, then gateways, rates and Policies.
	Cells []Cell `json:"cells"`
}

// WorkloadInfo and PolicyInfo describe the names in the cells.
type WorkloadInfo struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Unit  string `json:"unit"` // of a rate: "x" or "req/s"
}

// PolicyInfo is a policy's name, and its formula and source.
type PolicyInfo struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// Cell is one policy on one workload at one rate, over the seeds.
type Cell struct {
	Workload string  `json:"workload"`
	Gateways int     `json:"gateways"`
	Rate     float64 `json:"rate"`
	Policy   string  `json:"policy"`

	// Means over the runs, with the 95% confidence interval of the mean (Student's
	// t). Of TTFT (s) they are those of the runs' means and quantiles.
	TTFT          Interval `json:"ttft"`
	P50           Interval `json:"p50"`
	P90           Interval `json:"p90"`
	P99           Interval `json:"p99"`
	E2E           Interval `json:"e2e"`
	HitShare      Interval `json:"hit_share"`
	IdealShare    Interval `json:"ideal_share"`
	PooledShare   Interval `json:"pooled_share"`
	MaxMean       Interval `json:"max_mean"`
	MaxMeanTokens Interval `json:"max_mean_tokens"`
	// Requests, Broken, Lost and Rejected are sums over the runs, Saturated is how
	// many of them were.
	Requests  int `json:"requests"`
	Broken    int `json:"broken"`
	Lost      int `json:"lost"`
	Rejected  int `json:"rejected"`
	Preempted int `json:"preempted"`
	Saturated int `json:"saturated"`
	// Runs are in the order of Study.Seeds. Only the first one has a Timeline.
	Runs []*Result `json:"runs"`
}

// Interval is a mean and half the width of its 95% confidence interval, 0 if
// there is only one value.
type Interval struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half"`
}

// NewCell aggregates runs, of which there is at least one.
func NewCell(runs []*Result) Cell {
	r := runs[0]
	c := Cell{Workload: r.Workload, Gateways: r.Gateways, Rate: r.Rate, Policy: r.Policy, Runs: runs}
	over := func(get func(*Result) float64) Interval {
		v := make([]float64, len(runs))
		for i, r := range runs {
			v[i] = get(r)
		}
		return IntervalOf(v)
	}
	c.TTFT = over(func(r *Result) float64 { return r.TTFT.Mean })
	c.P50 = over(func(r *Result) float64 { return r.TTFT.P50 })
	c.P90 = over(func(r *Result) float64 { return r.TTFT.P90 })
	c.P99 = over(func(r *Result) float64 { return r.TTFT.P99 })
	c.E2E = over(func(r *Result) float64 { return r.E2E.Mean })
	c.HitShare = over(func(r *Result) float64 { return r.HitShare })
	c.IdealShare = over(func(r *Result) float64 { return r.IdealShare })
	c.PooledShare = over(func(r *Result) float64 { return r.PooledShare })
	c.MaxMean = over(func(r *Result) float64 { return r.MaxMean })
	c.MaxMeanTokens = over(func(r *Result) float64 { return r.MaxMeanTokens })
	for i, r := range runs {
		c.Requests += r.Requests
		c.Broken += r.Broken
		c.Lost += r.Lost
		c.Rejected += r.Rejected
		c.Preempted += r.Preempted
		if r.Saturated {
			c.Saturated++
		}
		if i > 0 {
			r.Timeline = nil
		}
	}
	return c
}

// IntervalOf returns the mean of v and its 95% confidence interval.
func IntervalOf(v []float64) Interval {
	mean, se := meanError(v)
	if len(v) < 2 {
		return Interval{Mean: mean}
	}
	return Interval{Mean: mean, Half: studentQuantile(len(v)-1) * se}
}

func meanError(v []float64) (mean, se float64) {
	if len(v) == 0 {
		return 0, 0
	}
	n := float64(len(v))
	for _, x := range v {
		mean += x / n
	}
	if len(v) < 2 {
		return mean, 0
	}
	ss := 0.0
	for _, x := range v {
		ss += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(ss / (n - 1) / n)
}

// studentQuantile is the 97.5% quantile of Student's t with df degrees of freedom.
func studentQuantile(df int) float64 {
	lo, hi := 1.0, 1000.0
	for range 60 {
		t := (lo + hi) / 2
		if studentP(t, df) > 0.05 {
			lo = t
		} else {
			hi = t
		}
	}
	return (lo + hi) / 2
}

// studentP is the chance that Student's t with df degrees of freedom is further
// from 0 than t: the regularised incomplete beta function of df/2 and 1/2 at
// df/(df+t^2) (Abramowitz and Stegun, 26.7.1 and 26.5.27).
func studentP(t float64, df int) float64 {
	n := float64(df)
	return betaRegularised(n/(n+t*t), n/2, 0.5)
}

// betaRegularised is I_x(a, b) by the continued fraction 26.5.8 of Abramowitz and
// Stegun, evaluated forwards.
func betaRegularised(x, a, b float64) float64 {
	if x <= 0 || x >= 1 {
		return min(max(x, 0), 1)
	}
	if x > (a+1)/(a+b+2) {
		return 1 - betaRegularised(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	// Convergents as p/q, rescaled before they overflow.
	p0, q0, p1, q1 := 1.0, 0.0, 1.0, 1.0
	last := 0.0
	for k := 1; k < 2000; k++ {
		m := float64(k / 2)
		var d float64
		if k%2 == 1 {
			d = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		} else {
			d = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		}
		p0, p1 = p1, p1+d*p0
		q0, q1 = q1, q1+d*q0
		p0, q0, p1 = p0/q1, q0/q1, p1/q1
		q1 = 1
		if math.Abs(p1-last) < 1e-14*math.Abs(p1) {
			break
		}
		last = p1
	}
	return front / p1
}

// Paired compares the mean time to the first token of two sets of runs, a minus b.
type Paired struct {
	Workload         string
	Gateways         int
	Rate             float64
	A, B             float64 // means over all runs
	Seeds            int
	Difference       Interval // over the seeds, paired: Student's t
	P                float64  // of that test, two-sided; 1 for one seed
	Requests         int      // pairs of requests, 0 if the runs did not keep them
	Faster, Slower   float64  // share of the pairs in which a was faster by 1% at least, or slower
	Low, High        float64  // 95% interval of the mean difference, bootstrap over the pairs
	BootstrapSamples int
}

// blockOfPairs is how many requests that follow each other the bootstrap draws
// together: neighbours share queues, so they do not count singly.
const blockOfPairs = 200

// Compare pairs the runs of a and b by seed, and their requests by place. Both are
// of one workload at one rate; runs with a seed that the other lacks are omitted.
// ok is false if there is no pair.
func Compare(a, b *Cell, rand func(n int) int) (p Paired, ok bool) {
	p = Paired{Workload: a.Workload, Gateways: a.Gateways, Rate: a.Rate, P: 1}
	var as, bs, diffs, blocks []float64
	faster, slower := 0, 0
	for _, x := range a.Runs {
		i := slices.IndexFunc(b.Runs, func(y *Result) bool { return y.Seed == x.Seed })
		if i < 0 {
			continue
		}
		y := b.Runs[i]
		as, bs = append(as, x.TTFT.Mean), append(bs, y.TTFT.Mean)
		diffs = append(diffs, x.TTFT.Mean-y.TTFT.Mean)
		if len(x.FirstTokens) != len(y.FirstTokens) {
			continue
		}
		sum, n := 0.0, 0
		for k, u := range x.FirstTokens {
			v := y.FirstTokens[k]
			if u < 0 || v < 0 {
				continue
			}
			p.Requests++
			switch {
			case u < v*0.99:
				faster++
			case u*0.99 > v:
				slower++
			}
			sum, n = sum+u-v, n+1
			if n == blockOfPairs {
				blocks = append(blocks, sum/float64(n))
				sum, n = 0, 0
			}
		}
		if n > blockOfPairs/2 {
			blocks = append(blocks, sum/float64(n))
		}
	}
	if len(diffs) == 0 {
		return p, false
	}
	p.Seeds = len(diffs)
	p.A, _ = meanError(as)
	p.B, _ = meanError(bs)
	p.Difference = IntervalOf(diffs)
	if mean, se := meanError(diffs); len(diffs) > 1 {
		switch {
		case se > 0:
			p.P = studentP(mean/se, len(diffs)-1)
		case mean != 0:
			p.P = 0
		}
	}
	if p.Requests > 0 {
		p.Faster, p.Slower = float64(faster)/float64(p.Requests), float64(slower)/float64(p.Requests)
	}
	if len(blocks) > 1 {
		p.BootstrapSamples = 2000
		means := make([]float64, p.BootstrapSamples)
		for i := range means {
			for range blocks {
				means[i] += blocks[rand(len(blocks))] / float64(len(blocks))
			}
		}
		slices.SortFunc(means, cmp.Compare[float64])
		p.Low, p.High = quantile(means, 0.025), quantile(means, 0.975)
	}
	return p, true
}
