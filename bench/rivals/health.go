package rivals

import (
	"math"
	"time"
)

// Health decides which replicas are offered, by the rule of a published router with its defaults. Replicas are numbered
// from 0, and now is the time since the beginning. It is not safe for concurrent use.
type Health interface {
	// Offer sets out[i] for each replica that gets no request.
	Offer(now time.Duration, out []bool)
	// Ended takes in the end of an attempt at replica i. status is that of the reply; 0: there was none.
	Ended(now time.Duration, i, status int)
}

// Outliers is Envoy's outlier detection:
//
//	5 replies of 5xx (or none) in a row eject a host for 30 s times its ejections, at most 300 s
//	no more than 10% of the hosts at once, but one in any case
//	each 10 s: hosts return, and of 5 hosts or more with 100 requests each those are ejected that have a share of
//	successes below mean - 1.9 x standard deviation
//
// A host that was not ejected in an interval loses one of its ejections. The panic threshold of 50% is never reached.
//
// Source: envoyproxy/envoy api/envoy/config/cluster/v3/outlier_detection.proto, commit 1282f875.
type Outliers struct {
	hosts []host
	swept time.Duration
}

type host struct {
	row       int // failures
	good, all int // in this interval
	times     int // ejections
	since     time.Duration
	out       bool
}

const (
	outlierRow      = 5
	outlierInterval = 10 * time.Second
	outlierBase     = 30 * time.Second
	outlierMax      = 300 * time.Second
	outlierShare    = 0.10
	outlierHosts    = 5
	outlierVolume   = 100
	outlierFactor   = 1.9
)

// NewOutliers returns the rule for n hosts.
func NewOutliers(n int) *Outliers { return &Outliers{hosts: make([]host, n)} }

// Offer is that of Health.
func (o *Outliers) Offer(now time.Duration, out []bool) {
	for now >= o.swept+outlierInterval {
		o.swept += outlierInterval
		o.sweep()
	}
	for i := range o.hosts {
		out[i] = o.hosts[i].out
	}
}

func (o *Outliers) sweep() {
	var shares []float64
	for i := range o.hosts {
		h := &o.hosts[i]
		switch {
		case h.out && o.swept-h.since >= min(outlierBase*time.Duration(h.times), outlierMax):
			h.out = false
		case !h.out:
			h.times = max(h.times-1, 0)
		}
		if h.all >= outlierVolume {
			shares = append(shares, float64(h.good)/float64(h.all))
		}
	}
	mean, deviation := 0.0, 0.0
	for _, s := range shares {
		mean += s / float64(len(shares))
	}
	for _, s := range shares {
		deviation += (s - mean) * (s - mean) / float64(len(shares))
	}
	least := mean - outlierFactor*math.Sqrt(deviation)
	for i := range o.hosts {
		h := &o.hosts[i]
		if len(shares) >= outlierHosts && h.all >= outlierVolume && float64(h.good)/float64(h.all) < least {
			o.eject(o.swept, i)
		}
		h.good, h.all = 0, 0
	}
}

func (o *Outliers) eject(now time.Duration, i int) {
	ejected := 0
	for k := range o.hosts {
		if o.hosts[k].out {
			ejected++
		}
	}
	h := &o.hosts[i]
	if h.out || ejected > 0 && float64(ejected)/float64(len(o.hosts)) >= outlierShare {
		return
	}
	h.out, h.since, h.row = true, now, 0
	h.times++
}

// Ended is that of Health.
func (o *Outliers) Ended(now time.Duration, i, status int) {
	h := &o.hosts[i]
	h.all++
	if status != 0 && status < 500 {
		h.good++
		h.row = 0
		return
	}
	if h.row++; h.row >= outlierRow {
		o.eject(now, i)
	}
}

// Breakers are the circuit breakers of SMG, formerly the SGLang router: 10 failures in a row open one, after 60 s it is
// half open for all requests, and 3 successes then close it. 408, 500, 502, 503, 504 and no reply are failures; a 429
// is none, and no success.
//
// Sources: lightseekorg/smg docs/concepts/reliability/circuit-breakers.md, commit 8258cae4, and record_outcome of its
// workers; sgl-project/sglang sgl-model-gateway/src/core/circuit_breaker.rs, commit 07289e64.
type Breakers struct{ workers []breaker }

type breaker struct {
	failures, successes int // in a row
	open, half          bool
	since               time.Duration
}

const (
	breakerFailures  = 10
	breakerSuccesses = 3
	breakerOpen      = 60 * time.Second
)

// NewBreakers returns the rule for n workers.
func NewBreakers(n int) *Breakers { return &Breakers{make([]breaker, n)} }

// Offer is that of Health.
func (b *Breakers) Offer(now time.Duration, out []bool) {
	for i := range b.workers {
		w := &b.workers[i]
		if w.open && now-w.since >= breakerOpen {
			*w = breaker{half: true}
		}
		out[i] = w.open
	}
}

// Ended is that of Health.
func (b *Breakers) Ended(now time.Duration, i, status int) {
	w := &b.workers[i]
	switch status {
	case 429:
	case 0, 408, 500, 502, 503, 504:
		w.successes = 0
		w.failures++
		if w.half || !w.open && w.failures >= breakerFailures {
			*w = breaker{open: true, since: now}
		}
	default:
		w.failures = 0
		w.successes++
		if w.half && w.successes >= breakerSuccesses {
			*w = breaker{}
		}
	}
}

// Saturation is llm-d's utilization detector as a filter: a replica of which the metrics page, read each 50 ms, shows 5
// waiting requests or more is left out; if that is true of all, none is. The threshold for the use of the KV cache,
// 0.8, is left out: places run out first here. Replies have no influence.
//
// Source: llm-d/llm-d-router pkg/epp/framework/plugins/flowcontrol/saturationdetector/utilization, commit 39142fb9.
type Saturation struct {
	waiting func(i int) int
	page    []int
	read    time.Duration
}

const (
	saturationQueue  = 5
	saturationScrape = 50 * time.Millisecond
)

// NewSaturation returns the rule for n replicas, of which waiting returns the length of the queue.
func NewSaturation(n int, waiting func(i int) int) *Saturation {
	return &Saturation{waiting: waiting, page: make([]int, n), read: -saturationScrape}
}

// Offer is that of Health.
func (s *Saturation) Offer(now time.Duration, out []bool) {
	if now-s.read >= saturationScrape {
		s.read = now
		for i := range s.page {
			s.page[i] = s.waiting(i)
		}
	}
	left := 0
	for i, n := range s.page {
		if out[i] = n >= saturationQueue; !out[i] {
			left++
		}
	}
	if left == 0 {
		clear(out)
	}
}

// Ended is that of Health.
func (s *Saturation) Ended(time.Duration, int, int) {}

// NoHealth offers all replicas always.
type NoHealth struct{}

// Offer is that of Health.
func (NoHealth) Offer(_ time.Duration, out []bool) { clear(out) }

// Ended is that of Health.
func (NoHealth) Ended(time.Duration, int, int) {}
