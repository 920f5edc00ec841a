package vllmtest

import (
	"bytes"
	"net/http"
	"strconv"
)

// Dialect is the engine with the metrics page that a replica serves. Its numbers are the
// same in all of them, as far as the engine has them; all else stays vLLM's.
type Dialect string

const (
	VLLM     Dialect = "vllm"
	VLLM06   Dialect = "vllm_0.6" // the names and labels before V1
	SGLang   Dialect = "sglang"
	TensorRT Dialect = "tensorrt_llm"        // at /prometheus/metrics; /metrics is JSON
	Triton   Dialect = "triton_tensorrt_llm" // Triton's TensorRT-LLM backend
	TGI      Dialect = "tgi"
	LlamaCpp Dialect = "llama.cpp"
)

// dialects write their page; the short ones have the metrics that a router reads.
var dialects = map[Dialect]func(*Config, snapshot, rank) []byte{
	"": vllmPage, VLLM: vllmPage, VLLM06: vllm06Page, SGLang: sglangPage,
	TensorRT: tensorRTPage, Triton: tritonPage, TGI: tgiPage, LlamaCpp: llamaCppPage,
}

// rankLabels are the labels by which pages distinguish data-parallel ranks.
var rankLabels = map[Dialect]string{"": "engine", VLLM: "engine", SGLang: "dp_rank"}

// rank is the rank of the part of a page that is written.
type rank struct {
	index int
	of    int       // how many there are
	all   *snapshot // all of them together
}

func metricsPage(cfg *Config, ranks []snapshot) []byte {
	all := ranks[0]
	for _, s := range ranks[1:] {
		all = all.plus(s)
	}
	pages := make([][]byte, len(ranks))
	for i, s := range ranks {
		pages[i] = dialects[cfg.Dialect](cfg, s, rank{i, len(ranks), &all})
	}
	return mergePages(pages)
}

// mergePages makes one page of those of the ranks, which have the same metrics in
// the same order: each metric once, with the lines of all ranks. A line that is of
// no rank is there once.
func mergePages(pages [][]byte) []byte {
	if len(pages) == 1 {
		return pages[0]
	}
	split := make([][][]byte, len(pages))
	for i, p := range pages {
		split[i] = bytes.Split(p, []byte("# HELP "))
	}
	out := make([]byte, 0, len(pages)*len(pages[0]))
	for f := 1; f < len(split[0]); f++ { // nothing is before the first
		out = append(out, "# HELP "...)
		seen := make(map[string]bool)
		for _, families := range split {
			for line := range bytes.Lines(families[f]) {
				series := line
				if i := bytes.LastIndexByte(line, ' '); i >= 0 {
					series = line[:i]
				}
				if !seen[string(series)] {
					seen[string(series)] = true
					out = append(out, line...)
				}
			}
		}
	}
	return out
}

func (c *Config) metricsPath() string {
	if c.Dialect == TensorRT {
		return "/prometheus/metrics"
	}
	return "/metrics"
}

// usage is the share of the blocks that running requests hold.
func (s *snapshot) usage(cfg *Config) float64 { return float64(s.blocksUsed) / float64(cfg.Blocks) }

func (s *snapshot) finished() float64 { return float64(s.stopped + s.length) }

// processStart writes when the engine started, as Python's client does.
func (p *page) processStart(s snapshot) {
	p.head("process_start_time_seconds", "gauge", "Start time of the process in seconds since 1970.")
	p.bare("process_start_time_seconds", float64(s.created.UnixNano())/1e9)
}

// bare writes a sample without labels.
func (p *page) bare(name string, v float64) {
	p.b = append(append(p.b, name...), ' ')
	p.b = append(appendFloat(p.b, v), '\n')
}

func named(cfg *Config) *page {
	return &page{model: `model_name="` + escapeLabel(cfg.modelName()) + `"`}
}

func vllm06Page(cfg *Config, s snapshot, _ rank) []byte {
	p := named(cfg)
	p.processStart(s)
	p.gauge("vllm:num_requests_running", "Number of requests in the batch.", float64(s.running))
	p.gauge("vllm:num_requests_swapped", "Number of requests moved to the CPU.", 0)
	p.gauge("vllm:num_requests_waiting", "Number of requests that wait.", float64(s.waiting))
	p.gauge("vllm:gpu_cache_usage_perc", "Share of the cache in use, 0 to 1.", s.usage(cfg))
	p.head("vllm:prompt_tokens_total", "counter", "Number of prompt tokens.")
	p.sample("vllm:prompt_tokens_total", "", float64(s.promptTokens))
	p.histogram("vllm:time_to_first_token_seconds", "Seconds from arrival to the first token.", s.ttft)
	return p.b
}

func sglangPage(cfg *Config, s snapshot, r rank) []byte {
	p := named(cfg)
	p.first = `engine_type="unified",`
	if r.of > 1 {
		p.first = `dp_rank="` + strconv.Itoa(r.index) + `",` + p.first
	}
	name := p.model
	p.model += `,moe_ep_rank="0",pp_rank="0",tp_rank="0"`
	p.gauge("sglang:num_running_reqs", "Number of requests in the batch.", float64(s.running))
	p.gauge("sglang:num_queue_reqs", "Number of requests that wait.", float64(s.waiting))
	p.gauge("sglang:num_grammar_queue_reqs", "Number of requests that wait for a grammar.", 0)
	p.gauge("sglang:token_usage", "Share of the cache in use, 0 to 1.", s.usage(cfg))
	if r.of > 1 { // the tokenizer counts, which serves all ranks
		p.first, p.model = `engine_type="unified",`, name
	}
	p.head("sglang:prompt_tokens_total", "counter", "Number of prompt tokens.")
	p.sample("sglang:prompt_tokens_total", "", float64(r.all.promptTokens))
	p.histogram("sglang:time_to_first_token_seconds", "Seconds from arrival to the first token.", r.all.ttft)
	return p.b
}

func tensorRTPage(cfg *Config, s snapshot, _ rank) []byte {
	p := named(cfg)
	p.first = `engine_type="undefined",`
	p.gauge("trtllm_num_requests_running", "Number of requests in the batch.", float64(s.running))
	p.gauge("trtllm_num_requests_waiting", "Number of requests that wait.", float64(s.waiting))
	p.gauge("trtllm_kv_cache_utilization", "Share of the cache in use, 0 to 1.", s.usage(cfg))
	p.head("trtllm_request_success_total", "counter", "Number of requests that succeeded.")
	p.sample("trtllm_request_success_total", `finished_reason="stop"`, float64(s.stopped))
	p.sample("trtllm_request_success_total", `finished_reason="length"`, float64(s.length))
	return p.b
}

// iterations is trtllm-serve's own page of statistics, cut to the part that it has in
// common with the other.
func (s *Server) iterations(w http.ResponseWriter, g *generation) {
	st := s.snapshots(g)[0]
	writeJSON(w, http.StatusOK, []map[string]any{{
		"iter": st.steps, "numActiveRequests": st.running, "numQueuedRequests": st.waiting,
		"kvCacheStats": map[string]int{
			"maxNumBlocks": s.cfg.Blocks, "usedNumBlocks": st.blocksUsed, "freeNumBlocks": s.cfg.Blocks - st.blocksUsed,
			"tokensPerBlock": s.cfg.BlockSize,
		},
	}})
}

func tritonPage(cfg *Config, s snapshot, _ rank) []byte {
	p := &page{model: `model="tensorrt_llm"`}
	family := func(name, help, label string, values []string, v ...float64) {
		p.head(name, "gauge", help)
		for i, x := range v {
			p.b = append(p.b, name+"{"+label+`="`+values[i]+`",model="tensorrt_llm",version="1"} `...)
			p.b = append(strconv.AppendFloat(p.b, x, 'g', -1, 64), '\n')
		}
	}
	family("nv_trt_llm_request_metrics", "TRT LLM request metrics", "request_type",
		[]string{"waiting", "context", "scheduled", "max", "active"},
		float64(s.waiting), 0, float64(s.running), float64(cfg.MaxSeqs), float64(s.running+s.waiting))
	family("nv_trt_llm_kv_cache_block_metrics", "TRT LLM KV cache block metrics", "kv_cache_block_type",
		[]string{"fraction", "tokens_per", "used", "free", "max"},
		s.usage(cfg), float64(cfg.BlockSize), float64(s.blocksUsed), float64(cfg.Blocks-s.blocksUsed), float64(cfg.Blocks))
	return p.b
}

func tgiPage(_ *Config, s snapshot, _ rank) []byte {
	p := &page{}
	for _, m := range []struct {
		name, kind string
		v          float64
	}{
		{"tgi_request_count", "counter", s.finished()},
		{"tgi_batch_current_size", "gauge", float64(s.running)},
		{"tgi_queue_size", "gauge", float64(s.waiting)},
	} {
		p.b = append(p.b, "# TYPE "+m.name+" "+m.kind+"\n"...)
		p.bare(m.name, m.v)
	}
	return p.b
}

func llamaCppPage(cfg *Config, s snapshot, _ rank) []byte {
	p := &page{}
	for _, m := range []struct {
		name, kind, help string
		v                float64
	}{
		{"llamacpp:prompt_tokens_total", "counter", "Number of prompt tokens.", float64(s.promptTokens)},
		{"llamacpp:kv_cache_usage_ratio", "gauge", "Share of the cache in use, 0 to 1.", s.usage(cfg)},
		{"llamacpp:requests_processing", "gauge", "Number of requests in a slot.", float64(s.running)},
		{"llamacpp:requests_deferred", "gauge", "Number of requests that wait for a slot.", float64(s.waiting)},
	} {
		p.head(m.name, m.kind, m.help)
		p.bare(m.name, m.v)
	}
	return p.b
}
