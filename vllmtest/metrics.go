package vllmtest

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// counters are an engine's counts since its start.
type counters struct {
	created time.Time
	steps   uint64

	promptTokens, cachedTokens, outputTokens uint64
	stopped, length                          uint64 // finished, by reason
	aborted, rejected, preempted             uint64
	external                                 uint64 // prompt tokens that another replica has computed
	expired                                  uint64 // requests with blocks that nobody fetched
	wrong                                    uint64 // requests with blocks that may be another prompt's

	iterationTokens, promptLen, outputLen histogram
	ttft, itl, tpot, e2e, queue           histogram
	inference, prefillTime, decodeTime    histogram
}

// The bucket bounds are those of vLLM 0.32 with a model length of 131,072.
var (
	stepBounds   = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	lengthBounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	ttftBounds   = []float64{
		.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
	}
	itlBounds     = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBounds = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

func newCounters(now time.Time) counters {
	return counters{
		created:         now,
		iterationTokens: newHistogram(stepBounds),
		promptLen:       newHistogram(lengthBounds), outputLen: newHistogram(lengthBounds),
		ttft: newHistogram(ttftBounds), itl: newHistogram(itlBounds), tpot: newHistogram(itlBounds),
		e2e: newHistogram(requestBounds), queue: newHistogram(requestBounds),
		inference: newHistogram(requestBounds), prefillTime: newHistogram(requestBounds),
		decodeTime: newHistogram(requestBounds),
	}
}

// prompt counts s when it is first scheduled.
func (m *counters) prompt(s *seq) {
	m.promptTokens += uint64(s.prompt)
	m.cachedTokens += uint64(s.cached)
}

// token counts the token that s has just got.
func (m *counters) token(s *seq, now time.Time) {
	m.outputTokens++
	if s.produced == 1 {
		s.first = now
		m.ttft.observe(now.Sub(s.arrived).Seconds())
	} else {
		m.itl.observe(now.Sub(s.last).Seconds())
	}
}

// finish counts s when it has all its tokens.
func (m *counters) finish(s *seq) {
	if s.tokens[len(s.tokens)-1] == tokEnd {
		m.stopped++
	} else {
		m.length++
	}
	m.promptLen.observe(float64(s.prompt))
	m.outputLen.observe(float64(s.produced))
	m.e2e.observe(s.ended.Sub(s.arrived).Seconds())
	m.queue.observe(s.started.Sub(s.arrived).Seconds())
	m.inference.observe(s.ended.Sub(s.started).Seconds())
	m.prefillTime.observe(s.first.Sub(s.started).Seconds())
	decode := s.ended.Sub(s.first).Seconds()
	m.decodeTime.observe(decode)
	if s.produced > 1 {
		decode /= float64(s.produced - 1)
	}
	m.tpot.observe(decode)
}

type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds
	sum    float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

func (h histogram) clone() histogram {
	h.counts = slices.Clone(h.counts)
	return h
}

// page is a metrics page in the making.
type page struct {
	b     []byte
	first string // the labels before model_name, with a comma behind
	model string // the label model_name
	since string // when the counters began; "": the page does not say
}

func (p *page) head(name, kind, help string) {
	p.b = append(p.b, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

// sample writes one line; extra is a further label, or "".
func (p *page) sample(name, extra string, v float64) {
	p.series(name, extra)
	p.b = append(appendFloat(p.b, v), '\n')
}

// series writes a name and its labels, these in alphabetical order.
func (p *page) series(name, extra string) {
	p.b = append(append(p.b, name...), '{')
	p.b = append(p.b, p.first...)
	switch {
	case extra == "":
		p.b = append(p.b, p.model...)
	case extra < p.model:
		p.b = append(append(append(p.b, extra...), ','), p.model...)
	default:
		p.b = append(append(append(p.b, p.model...), ','), extra...)
	}
	p.b = append(p.b, "} "...)
}

// appendFloat writes v as Python does: a whole number ends in ".0".
func appendFloat(b []byte, v float64) []byte {
	n := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	if v == math.Trunc(v) && math.Abs(v) < 1e16 {
		b = strconv.AppendFloat(b[:n], v, 'f', 1, 64)
	}
	return b
}

func (p *page) gauge(name, help string, v float64) {
	p.head(name, "gauge", help)
	p.sample(name, "", v)
}

// counter writes a counter and its _created sibling, one line for each value of
// the label if there is one.
func (p *page) counter(name, help, label string, values []string, v ...float64) {
	extra := func(i int) string {
		if label == "" {
			return ""
		}
		return label + `="` + values[i] + `"`
	}
	p.head(name+"_total", "counter", help)
	for i, x := range v {
		p.sample(name+"_total", extra(i), x)
	}
	p.created(name, help, len(v), extra)
}

func (p *page) created(name, help string, n int, extra func(int) string) {
	if p.since == "" {
		return
	}
	p.head(name+"_created", "gauge", help)
	for i := range n {
		p.series(name+"_created", extra(i))
		p.b = append(append(p.b, p.since...), '\n')
	}
}

func (p *page) histogram(name, help string, h histogram) {
	p.head(name, "histogram", help)
	var n uint64
	for i, c := range h.counts {
		n += c
		le := "+Inf"
		if i < len(h.bounds) {
			le = string(appendFloat(nil, h.bounds[i]))
		}
		p.sample(name+"_bucket", `le="`+le+`"`, float64(n))
	}
	p.sample(name+"_count", "", float64(n))
	p.sample(name+"_sum", "", h.sum)
	p.created(name, help, 1, func(int) string { return "" })
}

// snapshot is an engine's state at one instant.
type snapshot struct {
	counters
	running, waiting         int
	asleep                   bool
	blocksUsed, blocksCached int
	evicted                  uint64

	// Adapters. Of several ranks vLLM's page has none.
	loaded []string
	infos  []info
}

func (e *engine) snapshot() snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := snapshot{
		counters: e.m,
		running:  len(e.sched.running), waiting: len(e.sched.waiting),
		blocksUsed: e.sched.pool.inUse(), blocksCached: len(e.sched.pool.cached),
		evicted: e.sched.pool.evicted,
		loaded:  slices.Clone(e.sched.slots.loaded), infos: slices.Clone(e.sched.slots.infos),
	}
	for _, h := range []*histogram{
		&s.iterationTokens, &s.promptLen, &s.outputLen, &s.ttft, &s.itl, &s.tpot,
		&s.e2e, &s.queue, &s.inference, &s.prefillTime, &s.decodeTime,
	} {
		*h = h.clone()
	}
	return s
}

// plus returns the sum of two ranks.
func (s snapshot) plus(o snapshot) snapshot {
	for _, h := range [...]struct{ to, from *histogram }{
		{&s.iterationTokens, &o.iterationTokens}, {&s.promptLen, &o.promptLen}, {&s.outputLen, &o.outputLen},
		{&s.ttft, &o.ttft}, {&s.itl, &o.itl}, {&s.tpot, &o.tpot}, {&s.e2e, &o.e2e}, {&s.queue, &o.queue},
		{&s.inference, &o.inference}, {&s.prefillTime, &o.prefillTime}, {&s.decodeTime, &o.decodeTime},
	} {
		*h.to = h.to.clone()
		for i, n := range h.from.counts {
			h.to.counts[i] += n
		}
		h.to.sum += h.from.sum
	}
	for _, n := range [...]struct {
		to   *uint64
		from uint64
	}{
		{&s.steps, o.steps}, {&s.promptTokens, o.promptTokens}, {&s.cachedTokens, o.cachedTokens},
		{&s.outputTokens, o.outputTokens},
		{&s.stopped, o.stopped}, {&s.length, o.length}, {&s.aborted, o.aborted}, {&s.rejected, o.rejected},
		{&s.preempted, o.preempted}, {&s.evicted, o.evicted},
		{&s.external, o.external}, {&s.expired, o.expired}, {&s.wrong, o.wrong},
	} {
		*n.to += n.from
	}
	s.running += o.running
	s.waiting += o.waiting
	s.blocksUsed += o.blocksUsed
	s.blocksCached += o.blocksCached
	return s
}

// vllmPage writes the lines of a rank as vLLM's /metrics does.
func vllmPage(cfg *Config, s snapshot, r rank) []byte {
	engine := `engine="` + strconv.Itoa(r.index) + `",`
	p := &page{
		b:     make([]byte, 0, 40<<10),
		first: engine,
		model: `model_name="` + escapeLabel(cfg.modelName()) + `"`,
		since: strconv.FormatFloat(float64(s.created.UnixNano())/1e9, 'e', -1, 64),
	}
	f := func(n uint64) float64 { return float64(n) }
	var external uint64
	if cfg.Transfer != nil {
		external = s.promptTokens - s.cachedTokens
	}
	if r.of == 1 {
		p.processStart(s)
	} else {
		p.since = "" // several processes add up a page, which does not say when any of them began
	}
	p.gauge("vllm:num_requests_running", "Number of requests in the batch.", float64(s.running))
	p.gauge("vllm:num_requests_waiting", "Number of requests that wait to be scheduled.", float64(s.waiting))
	p.head("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.")
	p.sample("vllm:num_requests_waiting_by_reason", `reason="capacity"`, float64(s.waiting))
	p.sample("vllm:num_requests_waiting_by_reason", `reason="deferred"`, 0)
	p.head("vllm:engine_sleep_state", "gauge", "Sleep state of the engine.")
	asleep := 0.0
	if s.asleep {
		asleep = 1
	}
	p.sample("vllm:engine_sleep_state", `sleep_state="awake"`, 1-asleep)
	p.sample("vllm:engine_sleep_state", `sleep_state="weights_offloaded"`, asleep)
	p.sample("vllm:engine_sleep_state", `sleep_state="discard_all"`, 0)
	p.gauge("vllm:kv_cache_usage_perc", "Share of the blocks that running requests use, 0 to 1.",
		float64(s.blocksUsed)/float64(cfg.Blocks))
	p.counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", "", nil, f(s.promptTokens))
	p.counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", "", nil, f(s.cachedTokens))
	p.counter("vllm:external_prefix_cache_queries", "Prompt tokens looked up outside the engine.", "", nil, f(external))
	p.counter("vllm:external_prefix_cache_hits", "Prompt tokens found outside the engine.", "", nil, f(s.external))
	p.counter("vllm:num_preemptions", "Number of preemptions.", "", nil, f(s.preempted))
	p.counter("vllm:prompt_tokens", "Number of prompt tokens.", "", nil, f(s.promptTokens))
	p.counter("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.", "source",
		[]string{"local_compute", "local_cache_hit", "external_kv_transfer"},
		f(s.promptTokens-s.cachedTokens-s.external), f(s.cachedTokens), f(s.external))
	if cfg.Transfer != nil && cfg.Transfer.Protocol == "nixl" {
		p.counter("vllm:nixl_num_kv_expired_reqs", //
			"Requests with blocks that were not fetched in time.", "", nil, f(s.expired))
	}
	p.counter("vllm:prompt_tokens_cached", "Number of prompt tokens that were cached.", "", nil, f(s.cachedTokens))
	p.counter("vllm:generation_tokens", "Number of generated tokens.", "", nil, f(s.outputTokens))
	p.counter("vllm:request_success", "Number of ended requests by reason.", "finished_reason",
		[]string{"stop", "length", "abort", "error", "repetition"}, f(s.stopped), f(s.length), f(s.aborted), 0, 0)

	if r.of == 1 {
		p.adapters(cfg, &s)
	}

	p.first = "" // it is counted before an engine is chosen
	p.counter("vllm:admission_rejections", "Number of requests refused at the door.", "reason",
		[]string{"max_num_queued_reqs", "max_num_queued_tokens"}, f(r.all.rejected), 0)
	p.first = engine

	p.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", s.promptLen)
	p.histogram("vllm:request_generation_tokens", "Generated tokens of a request.", s.outputLen)
	p.histogram("vllm:iteration_tokens_total", "Tokens computed in a step.", s.iterationTokens)
	p.histogram("vllm:time_to_first_token_seconds", "Seconds from arrival to the first token.", s.ttft)
	p.histogram("vllm:inter_token_latency_seconds", "Seconds between two tokens.", s.itl)
	p.histogram("vllm:request_time_per_output_token_seconds", "Mean seconds for a token after the first.", s.tpot)
	p.histogram("vllm:e2e_request_latency_seconds", "Seconds from arrival to the end.", s.e2e)
	p.histogram("vllm:request_queue_time_seconds", "Seconds in the queue.", s.queue)
	p.histogram("vllm:request_inference_time_seconds", "Seconds in the batch.", s.inference)
	p.histogram("vllm:request_prefill_time_seconds", "Seconds from the batch to the first token.", s.prefillTime)
	p.histogram("vllm:request_decode_time_seconds", "Seconds from the first token to the end.", s.decodeTime)

	p.head("vllm:cache_config_info", "gauge", "The cache's configuration.")
	p.first, p.model = "", `block_size="`+strconv.Itoa(cfg.BlockSize)+`",enable_prefix_caching="True",`+engine+
		`kv_cache_size_tokens="`+strconv.Itoa(cfg.Blocks*cfg.BlockSize)+`",num_gpu_blocks="`+strconv.Itoa(cfg.Blocks)+
		`",prefix_caching_hash_algo="sha256"`
	p.sample("vllm:cache_config_info", "", 1)
	return p.b
}

func escapeLabel(s string) string {
	var b []byte
	for i := range len(s) {
		switch s[i] {
		case '\\', '"':
			b = append(b, '\\', s[i])
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}
