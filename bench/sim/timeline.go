package sim

import "time"

// maxSamples bounds a timeline; the last sample includes everything after it.
const maxSamples = 1000

// timeline collects a Result's data over time, and of each request.
type timeline struct {
	step    instant
	samples []Sample
	buckets []bucket
	ttft    []float64
	e2e     []float64
	token   []float64
}

// bucket is the requests that arrived in one step.
type bucket struct {
	arrived, seen  int
	ttft           float64
	prompt, cached int64
}

func (t *timeline) init(span instant) {
	t.step = max(span/100, at(100*time.Millisecond))
}

func (t *timeline) bucket(arrived instant) *bucket {
	i := min(int(arrived/t.step), maxSamples-1)
	for len(t.buckets) <= i {
		t.buckets = append(t.buckets, bucket{})
	}
	return &t.buckets[i]
}

func (t *timeline) arrived(now instant) { t.bucket(now).arrived++ }

func (t *timeline) first(arrived, now instant, prompt, cached int) {
	b := t.bucket(arrived)
	b.seen++
	b.ttft += (now - arrived).seconds()
	b.prompt += int64(prompt)
	b.cached += int64(cached)
	t.ttft = append(t.ttft, (now - arrived).seconds())
}

func (t *timeline) done(_ int, r *request, now instant) {
	if r.first != 0 {
		t.e2e = append(t.e2e, (now - r.arrived).seconds())
	}
}

func (t *timeline) sample(engines []*engine) {
	if len(t.samples) >= maxSamples {
		return
	}
	var s Sample
	for _, e := range engines {
		n := e.queued()
		s.InFlight += n
		s.Waiting += e.waiting.len()
		s.Most = max(s.Most, n)
	}
	t.samples = append(t.samples, s)
}

// complete joins samples and buckets.
func (t *timeline) complete() []Sample {
	for len(t.samples) < len(t.buckets) {
		t.samples = append(t.samples, Sample{})
	}
	for i := range t.buckets {
		b, s := &t.buckets[i], &t.samples[i]
		s.Arrived = b.arrived
		if b.seen > 0 {
			s.TTFT = b.ttft / float64(b.seen)
			s.Hit = float64(b.cached) / float64(b.prompt)
		}
	}
	return t.samples
}

// saturated is the rule of Result.Saturated.
func saturated(samples []Sample, replicas int) bool {
	n := min(len(samples), 100) // those of the span
	mean := func(from, to int) float64 {
		sum := 0
		for _, s := range samples[from:to] {
			sum += s.Waiting
		}
		return float64(sum) / float64(max(1, to-from))
	}
	if n < 10 {
		return false
	}
	middle, last := mean(n*2/5, n*3/5), mean(n*4/5, n)
	each := float64(replicas)
	return last > 4*each && last > 1.5*middle || mean(0, n) > 8*each
}

func (f *fleet) result() *Result {
	r := new(Result) // a copy: a pointer into f would keep the whole fleet alive
	*r = f.res
	c := f.cfg
	r.Workload, r.Policy, r.Rate, r.Seed = c.Workload.Name, c.Policy.Name, c.Rate, c.Seed
	r.Replicas, r.Gateways, r.Calibration = c.Replicas, c.Gateways, c.Calibration.Name
	r.Requests = len(f.reqs)
	for _, e := range f.engines {
		r.AdapterLoads += e.loads
	}
	r.Span = f.span.seconds()
	if c.Requests {
		r.FirstTokens = make([]float64, len(f.reqs))
		for i := range f.reqs {
			r.FirstTokens[i] = -1
			if q := &f.reqs[i]; q.first != 0 {
				r.FirstTokens[i] = (q.first - q.arrived).seconds()
			}
		}
	}
	r.TTFT, r.E2E = distOf(f.timeline.ttft), distOf(f.timeline.e2e)
	r.PerToken = distOf(f.timeline.token)
	if r.PromptTokens > 0 {
		r.HitShare = float64(r.CachedTokens) / float64(r.PromptTokens)
		r.IdealShare /= float64(r.PromptTokens)
		r.PooledShare /= float64(r.PromptTokens)
	}
	if n := len(f.timeline.ttft); n > 0 {
		r.RightShare /= float64(n)
	}
	r.Timeline, r.TimelineStep = f.timeline.complete(), f.timeline.step.seconds()
	r.Saturated = saturated(r.Timeline, c.Replicas)
	most, sum, mostTokens, sumTokens := 0, 0, int64(0), int64(0)
	for i, e := range f.engines {
		p := &r.PerReplica[i]
		p.Prefilled, p.Busy, p.Preempted = int64(e.prefilled), e.busyTime.seconds(), e.preempted
		r.Preempted += e.preempted
		most, sum = max(most, p.Requests), sum+p.Requests
		mostTokens, sumTokens = max(mostTokens, p.Prefilled), sumTokens+p.Prefilled
	}
	n := float64(len(f.engines))
	if sum > 0 {
		r.MaxMean = float64(most) * n / float64(sum)
	}
	if sumTokens > 0 {
		r.MaxMeanTokens = float64(mostTokens) * n / float64(sumTokens)
	}
	return r
}
