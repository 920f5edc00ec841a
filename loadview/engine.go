package loadview

import "time"

// Dialect names the engine that wrote a metrics page, as told from its names.
type Dialect string

const (
	VLLM      Dialect = "vllm"
	SGLang    Dialect = "sglang"
	TensorRT  Dialect = "tensorrt_llm"        // trtllm-serve, at /prometheus/metrics
	Triton    Dialect = "triton_tensorrt_llm" // Triton's TensorRT-LLM backend
	TGI       Dialect = "tgi"
	LlamaCpp  Dialect = "llama.cpp"
	noDialect Dialect = ""
)

// Engine is what a member's metrics page said last: of all engines under its
// address together, or of its [Member.Rank], and of all their clients.
type Engine struct {
	Dialect Dialect
	// Running are the requests in the batch, Waiting all others that the engine
	// has. -1: the page does not say.
	Running, Waiting int
	// KVUsage is the share, 0 to 1, of the KV cache that running requests hold (not
	// what is merely cached): of the fullest engine and on average. -1: the page
	// does not say.
	KVUsage, KVUsageMean float64
	// Asleep says that an engine sleeps (vLLM's sleep mode): it has given up its
	// cache, and maybe its weights, and serves nothing until it is woken.
	Asleep bool
	// Started is when the server's process began; the zero Time: the page does not
	// say.
	Started time.Time
	// Age is the time since the page was read.
	Age time.Duration
}

// page is an Engine as it was read, and what tells of a restart.
type page struct {
	Engine
	start float64 // process_start_time_seconds; -1: not there
	count float64 // a counter that only a restart sets back; -1: not there
	read  time.Duration
}

// Engine returns what the member's metrics page said last, for filters and
// scorers. It takes no lock. It is false where the ID is no member and where no
// page was read within Scrape.StaleAfter: nothing is known then.
func (v *View) Engine(id string) (Engine, bool) {
	m := v.roster.Load().byID[id]
	if m == nil {
		return Engine{}, false
	}
	p := m.page.Load()
	if p == nil {
		return Engine{}, false
	}
	e := p.Engine
	e.Age = max(v.now()-p.read, 0)
	if e.Age >= v.cfg.Scrape.StaleAfter {
		return Engine{}, false
	}
	return e, true
}
