package loadview

import (
	"cmp"
	"math"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
)

const startName = "process_start_time_seconds"

// dialect is how one engine says its load.
type dialect struct {
	name  Dialect
	names []string // every name that read looks at
	rank  string   // the label of the data-parallel rank; "": there is none
	read  func(families, *page) error
}

// dialects are asked in order. The names and the label rules are those of the
// engines' own sources and pages: vLLM 0.6 to 0.32, SGLang 0.5, trtllm-serve 1.x,
// Triton's TensorRT-LLM backend, TGI 3, llama.cpp of 2025.
var dialects = []dialect{
	{VLLM, []string{
		"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_swapped",
		"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:engine_sleep_state", "vllm:prompt_tokens_total",
	}, "engine", readVLLM},
	{SGLang, []string{
		"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:num_grammar_queue_reqs",
		"sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_inflight_queue_reqs",
		"sglang:num_decode_prealloc_queue_reqs", "sglang:num_decode_transfer_queue_reqs",
		"sglang:token_usage", "sglang:prompt_tokens_total",
	}, "dp_rank", readSGLang},
	{TensorRT, []string{
		"trtllm_num_requests_running", "trtllm_num_requests_waiting", "trtllm_kv_cache_utilization", "trtllm_request_success_total",
	}, "", readTensorRT},
	{Triton, []string{"nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"}, "", readTriton},
	{TGI, []string{"tgi_batch_current_size", "tgi_queue_size", "tgi_request_count"}, "", plain("tgi_batch_current_size", "tgi_queue_size", "", "tgi_request_count")},
	{LlamaCpp, []string{
		"llamacpp:requests_processing", "llamacpp:requests_deferred", "llamacpp:kv_cache_usage_ratio", "llamacpp:prompt_tokens_total",
	}, "", plain("llamacpp:requests_processing", "llamacpp:requests_deferred", "llamacpp:kv_cache_usage_ratio", "llamacpp:prompt_tokens_total")},
}

// wanted are the names of all dialects.
var wanted = func() map[string]bool {
	w := map[string]bool{startName: true}
	for _, d := range dialects {
		for _, n := range d.names {
			w[n] = true
		}
	}
	return w
}()

// readVLLM adds up the engines (label engine, where there are several) and the
// models of the page. Before V1 there were swapped requests beside the waiting
// ones, and before 0.9.2 the KV usage had another name.
func readVLLM(f families, p *page) error {
	p.count = f.counter("vllm:prompt_tokens_total")
	usage := "vllm:kv_cache_usage_perc"
	if f[usage] == nil {
		usage = "vllm:gpu_cache_usage_perc"
	}
	p.usage(values(f[usage].GetMetric()))
	for _, m := range f["vllm:engine_sleep_state"].GetMetric() {
		if label(m, "sleep_state") == "awake" && value(m) == 0 {
			p.Asleep = true
		}
	}
	return p.load(
		values(f["vllm:num_requests_running"].GetMetric()),
		values(f["vllm:num_requests_waiting"].GetMetric()),
		values(f["vllm:num_requests_swapped"].GetMetric()),
	)
}

// readSGLang adds up the data-parallel ranks. What else than the queue waits is
// counted apart there: for its grammar, and for the other half of a
// disaggregated pair.
func readSGLang(f families, p *page) error {
	p.count = f.counter("sglang:prompt_tokens_total")
	p.usage(ranks(f["sglang:token_usage"]))
	waiting := [][]float64{ranks(f["sglang:num_queue_reqs"])}
	for _, name := range []string{
		"sglang:num_grammar_queue_reqs", "sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_inflight_queue_reqs",
		"sglang:num_decode_prealloc_queue_reqs", "sglang:num_decode_transfer_queue_reqs",
	} {
		waiting = append(waiting, ranks(f[name]))
	}
	return p.load(ranks(f["sglang:num_running_reqs"]), waiting...)
}

// ranks returns one value for each data-parallel rank, that of the lowest
// pipeline rank and of that the lowest tensor rank: the others repeat it. (Rank
// 0 alone would not do: with DP attention the second data-parallel rank is
// tensor rank 1 or more.) With priorities the total has an empty one.
func ranks(f *dto.MetricFamily) []float64 {
	type rank struct{ pp, tp int }
	type best struct {
		rank
		value float64
	}
	var order []string
	found := map[string]best{}
	for _, m := range f.GetMetric() {
		if label(m, "priority") != "" {
			continue
		}
		dp := label(m, "dp_rank")
		b := best{rank{number(label(m, "pp_rank")), number(label(m, "tp_rank"))}, value(m)}
		old, ok := found[dp]
		if !ok {
			order = append(order, dp)
		}
		c := cmp.Or(cmp.Compare(b.pp, old.pp), cmp.Compare(b.tp, old.tp))
		if !ok || c < 0 || c == 0 && b.value > old.value {
			found[dp] = b
		}
	}
	vs := make([]float64, len(order))
	for i, dp := range order {
		vs[i] = found[dp].value
	}
	return vs
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

func readTensorRT(f families, p *page) error {
	p.count = f.counter("trtllm_request_success_total")
	p.usage(values(f["trtllm_kv_cache_utilization"].GetMetric()))
	return p.load(values(f["trtllm_num_requests_running"].GetMetric()), values(f["trtllm_num_requests_waiting"].GetMetric()))
}

// readTriton takes the scheduled requests for the running ones: the active ones
// include those that wait, in some versions.
func readTriton(f families, p *page) error {
	of := func(name, key, want string) (vs []float64) {
		for _, m := range f[name].GetMetric() {
			if label(m, key) == want {
				vs = append(vs, value(m))
			}
		}
		return vs
	}
	p.usage(of("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"))
	return p.load(of("nv_trt_llm_request_metrics", "request_type", "scheduled"), of("nv_trt_llm_request_metrics", "request_type", "waiting"))
}

// plain reads an engine whose metrics have a name each.
func plain(running, waiting, usage, count string) func(families, *page) error {
	return func(f families, p *page) error {
		p.count = f.counter(count)
		p.usage(values(f[usage].GetMetric()))
		return p.load(values(f[running].GetMetric()), values(f[waiting].GetMetric()))
	}
}

// maxRequests bounds what a page may claim.
const maxRequests = 1 << 30

// load adds up. Of waiting only the first has to be there.
func (p *page) load(running []float64, waiting ...[]float64) error {
	r, err := sum(running)
	if err != nil {
		return err
	}
	w := 0.0
	for i, vs := range waiting {
		if i > 0 && len(vs) == 0 {
			continue
		}
		s, err := sum(vs)
		if err != nil {
			return err
		}
		w += s
	}
	p.Running, p.Waiting = int(math.Round(r)), int(math.Round(min(w, maxRequests)))
	return nil
}

func sum(vs []float64) (float64, error) {
	if len(vs) == 0 {
		return 0, errNoLoad
	}
	s := 0.0
	for _, v := range vs {
		if !(v >= 0) || math.IsInf(v, 0) {
			return 0, errBadCount
		}
		s += v
	}
	return min(s, maxRequests), nil
}

// usage notes the greatest share and the mean, unless one is none.
func (p *page) usage(vs []float64) {
	s, most := 0.0, 0.0
	for _, v := range vs {
		if !(v >= 0) || math.IsInf(v, 0) {
			return
		}
		v = min(v, 1)
		s += v
		most = max(most, v)
	}
	if len(vs) > 0 {
		p.KVUsage, p.KVUsageMean = most, s/float64(len(vs))
	}
}

// only returns the value of a name that has one sample.
func (f families) only(name string) (float64, bool) {
	ms := f[name].GetMetric()
	if len(ms) != 1 {
		return 0, false
	}
	return value(ms[0]), true
}

// counter returns the sum of a counter's samples, -1 where there are none.
func (f families) counter(name string) float64 {
	s := -1.0
	for _, v := range values(f[name].GetMetric()) {
		s = max(s, 0) + v
	}
	return s
}

func values(ms []*dto.Metric) []float64 {
	vs := make([]float64, len(ms))
	for i, m := range ms {
		vs[i] = value(m)
	}
	return vs
}

func value(m *dto.Metric) float64 { return m.GetUntyped().GetValue() }

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// seconds returns the instant that is v seconds after 1970.
func seconds(v float64) time.Time {
	if !(v < 1<<40) {
		return time.Time{}
	}
	whole, part := math.Modf(v)
	return time.Unix(int64(whole), int64(part*1e9))
}
