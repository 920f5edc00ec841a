package enginepage

import (
	"errors"
	"fmt"

	"github.com/warmroute/router"
)

// Dialect is the names that one engine gives to its load. A Dialect may be copied
// and is not changed by this package.
type Dialect struct {
	// Name is the engine's, as [State.Dialect] reports it. It is required.
	Name string
	// Running are the requests in the batch, of all samples together. It is
	// required: a page without it does not report the load.
	Running Series
	// Waiting are all other requests that the engine has, of all series together.
	// A page without the first one does not report the load; the others may be
	// missing.
	Waiting []Series
	// KVUsage is the share, 0 to 1, of the KV cache that running requests occupy: the
	// first of these series that the page has.
	KVUsage []Series
	// Total is a counter that only a restart sets back. The zero Series: none is
	// known.
	Total Series
	// Awake is a gauge that is 0 while the engine sleeps. The zero Series: the
	// engine does not sleep, or does not report it.
	Awake Series
	// AdapterRequests is a gauge of which the labels list LoRA adapters that have requests, and the slots: the sample
	// with the greatest value is the newest. AdapterLoaded has a sample for each adapter in a slot. Their labels are
	// those of vLLM: max_lora and running_lora_adapters; adapter_name, and level, which is gpu. The zero Series: the
	// engine has no such page.
	AdapterRequests, AdapterLoaded Series
	// Rank is the label of the data-parallel ranks on one page; "": the engine has
	// none.
	Rank string
	// Shards are the labels of the parts of one rank, if each part repeats the numbers
	// of the whole. Of each rank only the sample with the lowest shard counts, by the
	// first label, then by the next. None: every sample counts.
	Shards []string
}

// Series is the samples of one name, or those of them that have all of Labels. An
// empty value stands for a label that is empty or missing.
type Series struct {
	Name   string
	Labels map[string]string
}

// The names of the dialects that this package knows.
const (
	VLLM     = "vllm"
	SGLang   = "sglang"
	TensorRT = "tensorrt_llm"        // trtllm-serve, at /prometheus/metrics
	Triton   = "triton_tensorrt_llm" // Triton's TensorRT-LLM backend
	TGI      = "tgi"
	LlamaCpp = "llama.cpp"
	NIM      = "nim" // NVIDIA NIM, at /v1/metrics
)

// Dialects returns the dialects that this package knows, in the order in which
// they are tried. The names and the labels are those of the engines' own sources
// and pages: vLLM 0.6 to 0.32, SGLang 0.5, trtllm-serve 1.x, Triton's TensorRT-LLM
// backend, TGI 3, llama.cpp of 2025, NIM 1.x. The slice is the caller's.
func Dialects() []Dialect {
	return []Dialect{vllm(VLLM, "vllm:"), sglang(), tensorRT(), triton(), tgi(), llamaCpp(), vllm(NIM, "")}
}

func series(names ...string) []Series {
	all := make([]Series, len(names))
	for i, name := range names {
		all[i].Name = name
	}
	return all
}

// vllm adds up the engines (label engine, if there are several) and the models of
// the page. Before V1 there were swapped requests besides the waiting ones, and
// before 0.9.2 the KV usage had another name.
func vllm(name, prefix string) Dialect {
	return Dialect{
		Name:    name,
		Running: Series{Name: prefix + "num_requests_running"},
		Waiting: series(prefix+"num_requests_waiting", prefix+"num_requests_swapped"),
		KVUsage: series(prefix+"kv_cache_usage_perc", prefix+"gpu_cache_usage_perc"),
		Total:   Series{Name: prefix + "prompt_tokens_total"},
		Awake:   Series{prefix + "engine_sleep_state", map[string]string{"sleep_state": "awake"}},
		Rank:    "engine",

		AdapterRequests: Series{Name: prefix + "lora_requests_info"},
		AdapterLoaded:   Series{Name: prefix + "lora_adapter_loaded"},
	}
}

// sglang counts apart from the queue the requests that wait for a grammar, and
// those that wait for the other half of a disaggregated pair. With priorities the
// total has an empty one. Rank 0 alone would not do for the shards: with DP
// attention the second data-parallel rank is tensor rank 1 or more.
func sglang() Dialect {
	total := func(names ...string) []Series {
		all := series(names...)
		for i := range all {
			all[i].Labels = map[string]string{"priority": ""}
		}
		return all
	}
	return Dialect{
		Name:    SGLang,
		Running: total("sglang:num_running_reqs")[0],
		Waiting: total("sglang:num_queue_reqs", "sglang:num_grammar_queue_reqs",
			"sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_inflight_queue_reqs",
			"sglang:num_decode_prealloc_queue_reqs", "sglang:num_decode_transfer_queue_reqs"),
		KVUsage: total("sglang:token_usage"),
		Total:   Series{Name: "sglang:prompt_tokens_total"},
		Rank:    "dp_rank",
		Shards:  []string{"pp_rank", "tp_rank"},
	}
}

func tensorRT() Dialect {
	return Dialect{
		Name:    TensorRT,
		Running: Series{Name: "trtllm_num_requests_running"},
		Waiting: series("trtllm_num_requests_waiting"),
		KVUsage: series("trtllm_kv_cache_utilization"),
		Total:   Series{Name: "trtllm_request_success_total"},
	}
}

// triton takes the scheduled requests for the running ones: the active ones
// include those that wait, in some versions.
func triton() Dialect {
	request := func(kind string) Series {
		return Series{"nv_trt_llm_request_metrics", map[string]string{"request_type": kind}}
	}
	return Dialect{
		Name:    Triton,
		Running: request("scheduled"),
		Waiting: []Series{request("waiting")},
		KVUsage: []Series{{"nv_trt_llm_kv_cache_block_metrics", map[string]string{"kv_cache_block_type": "fraction"}}},
	}
}

func tgi() Dialect {
	return Dialect{
		Name:    TGI,
		Running: Series{Name: "tgi_batch_current_size"},
		Waiting: series("tgi_queue_size"),
		Total:   Series{Name: "tgi_request_count"},
	}
}

func llamaCpp() Dialect {
	return Dialect{
		Name:    LlamaCpp,
		Running: Series{Name: "llamacpp:requests_processing"},
		Waiting: series("llamacpp:requests_deferred"),
		KVUsage: series("llamacpp:kv_cache_usage_ratio"),
		Total:   Series{Name: "llamacpp:prompt_tokens_total"},
	}
}

// all returns every series of d that has a name.
func (d *Dialect) all() []Series {
	var named []Series
	single := []Series{d.Total, d.Awake, d.AdapterRequests, d.AdapterLoaded}
	for _, part := range [][]Series{{d.Running}, d.Waiting, d.KVUsage, single} {
		for _, s := range part {
			if s.Name != "" {
				named = append(named, s)
			}
		}
	}
	return named
}

// Validate returns a *router.ConfigError for each field of d that is missing,
// joined.
func (d Dialect) Validate() error {
	var errs []error
	require := func(field, value, what string) {
		if value == "" {
			errs = append(errs, &router.ConfigError{Field: field, Value: value, Allowed: "the name of " + what})
		}
	}
	require("Name", d.Name, "an engine")
	require("Running.Name", d.Running.Name, "a metric")
	for i, s := range d.Waiting {
		require(fmt.Sprintf("Waiting[%d].Name", i), s.Name, "a metric")
	}
	for i, s := range d.KVUsage {
		require(fmt.Sprintf("KVUsage[%d].Name", i), s.Name, "a metric")
	}
	return errors.Join(errs...)
}
