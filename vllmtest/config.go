package vllmtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Config describes a replica. The zero Config is a replica on a loopback port
// with the cache and the speed that the package comment names.
type Config struct {
	// Addr is the address to listen on, "127.0.0.1:0" if empty.
	Addr string
	// Model is the served model's name. If it is empty every name is accepted
	// and the replica calls itself "vllmtest"; otherwise another name is a 404,
	// and no name means this one.
	Model string
	// Adapters are the names of LoRA adapters, which requests name as model.
	Adapters []string
	// MaxLoras is the number of slots for adapters of each rank; 0: adapters cost nothing, and the page does not report
	// them. A request with an adapter that is in no slot has it loaded in the step that schedules it, which takes
	// LoadTime longer, in place of the one that was used least recently and has no request running. While all slots
	// have some it waits, and lets others pass. At most 1,024.
	MaxLoras int
	// LoadTime is the time of a load, before TimeScale.
	LoadTime time.Duration
	// ReportLoaded adds vllm:lora_adapter_loaded to the page, which lists the slots. Without it the page lists the
	// adapters that have requests, in vllm:lora_requests_info, as vLLM up to 0.32 does.
	ReportLoaded bool
	// DynamicAdapters opens /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM's
	// VLLM_ALLOW_RUNTIME_LORA_UPDATING does. A restart forgets what they did.
	DynamicAdapters bool
	// Dialect is the engine with the metrics that the replica serves; "" means VLLM.
	Dialect Dialect

	// Blocks is the size of the KV cache; 0 means 18,752, at most 4,194,304.
	Blocks int
	// BlockSize is the number of tokens in a block; 0 means 16, at most 1,024.
	BlockSize int
	// Recompute is the number of blocks at the end of each hit that are computed again all the
	// same, of which the events say nothing: 1 is vLLM up to 0.32 with EAGLE or MTP.
	Recompute int
	// MaxModelLen bounds a prompt with its reply, in tokens; 0 means 131,072 or
	// the size of the cache, whichever is less. It must fit into the cache.
	MaxModelLen int
	// MaxStepTokens is the budget of a step; 0 means 8,192.
	MaxStepTokens int
	// MaxSeqs is the number of sequences that run at once; 0 means 256. It may
	// not exceed MaxStepTokens.
	MaxSeqs int
	// MaxRequests bounds the requests that are running or waiting; more are
	// refused with 503, as vLLM's max_num_queued_reqs does. 0 means 1,024.
	MaxRequests int
	// MaxBody bounds a request's body in bytes; a longer one is a 413. 0 means
	// 16 MiB.
	MaxBody int64
	// ReplyTokens is the length of a reply in tokens, its end token included,
	// if the request does not ask for less (max_tokens) or for more (ignore_eos,
	// min_tokens). 0 means 128.
	ReplyTokens int

	// Ranks is the number of data-parallel ranks behind the one address; 0 means
	// 1, at most 64. Each has a cache and a scheduler of its own, of the sizes
	// above, and its own lines on the metrics page; bounds on requests apply to
	// those of each rank and of all together. The header X-data-parallel-rank
	// chooses one; the package comment says how. Only the dialects VLLM and SGLang
	// know of ranks, and an Instant replica has none.
	Ranks int

	// Events publishes the cache's KV events over ZeroMQ; nil: they are not
	// published. It makes no sense with Instant.
	Events *Events

	// Transfer makes the replica one of several that hand KV caches over; nil: it is not.
	Transfer *Transfer

	// Timing is the cost of a step; the zero Timing means the package comment's.
	Timing Timing
	// TimeScale multiplies every step's time; 0 means 1, 0.01 is 100 times as
	// fast. Below steps of some 100 us the timers of the machine set the pace.
	TimeScale float64

	// FirstToken, if set, is called with the time from each request's arrival at the engine to its first token, by the
	// engine's own clock: it advances by the time of each step, without TimeScale, and so does not depend on how late the
	// machine is. It is called with a lock of the engine's held, so it is quick and does not call the Server.
	FirstToken func(time.Duration)

	// Instant answers without tokenizer, cache and scheduler, for load generators:
	// the body is read but not parsed (it is searched for "stream": true and
	// "include_usage": true), every reply is the same text of ReplyTokens tokens,
	// streamed in one write; usage counts the body at 4 bytes a token and none of
	// them cached. /tokenize works as ever.
	Instant bool
	// Delay is how long an Instant replica takes to answer, at any load.
	// It needs Instant.
	Delay time.Duration

	served *served // the adapters by name, as they are now
}

// Timing is the cost of a scheduler step. Its source is the package comment's.
type Timing struct {
	// Step is the fixed part.
	Step time.Duration
	// PrefillToken is added for each token that is prefilled.
	PrefillToken time.Duration
	// PrefillAttention is added for each prefilled token and each token of its
	// context, in nanoseconds.
	PrefillAttention float64
	// DecodeContext is added for each token of context of each sequence that
	// decodes, in nanoseconds.
	DecodeContext float64
}

var defaultTiming = Timing{
	Step:             14 * time.Millisecond,
	PrefillToken:     46 * time.Microsecond,
	PrefillAttention: 0.8,
	DecodeContext:    56,
}

const (
	defaultModel = "vllmtest"
	maxBlocks    = 1 << 22
	maxBlockSize = 1 << 10
	maxRanks     = 64
	maxTokens    = 1 << 24 // a bound on everything that counts tokens
)

// withDefaults returns c with its zero values filled in, or an error that names
// the field that is wrong.
func (c Config) withDefaults() (Config, error) {
	ints := []struct {
		name string
		v    *int
		def  int
		max  int
	}{
		{"Blocks", &c.Blocks, 18752, maxBlocks},
		{"BlockSize", &c.BlockSize, 16, maxBlockSize},
		{"MaxStepTokens", &c.MaxStepTokens, 8192, maxTokens},
		{"MaxSeqs", &c.MaxSeqs, min(256, cmp.Or(c.MaxStepTokens, 8192)), maxTokens},
		{"MaxRequests", &c.MaxRequests, 1024, maxTokens},
		{"ReplyTokens", &c.ReplyTokens, 128, maxTokens},
		{"Ranks", &c.Ranks, 1, maxRanks},
	}
	for _, f := range ints {
		if *f.v < 0 || *f.v > f.max {
			return c, fmt.Errorf("vllmtest: Config.%s: %d is not in 0..%d", f.name, *f.v, f.max)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if c.Recompute < 0 || c.Recompute > 64 {
		return c, fmt.Errorf("vllmtest: Config.Recompute is %d; it is between 0 and 64", c.Recompute)
	}
	if c.MaxModelLen < 0 || c.MaxModelLen > c.Blocks*c.BlockSize {
		return c, fmt.Errorf("vllmtest: Config.MaxModelLen: %d is not in 0..%d, the size of the cache",
			c.MaxModelLen, c.Blocks*c.BlockSize)
	}
	if c.MaxModelLen == 0 {
		c.MaxModelLen = min(131072, c.Blocks*c.BlockSize)
	}
	if c.MaxSeqs > c.MaxStepTokens {
		return c, fmt.Errorf("vllmtest: Config.MaxSeqs: %d exceeds MaxStepTokens, %d", c.MaxSeqs, c.MaxStepTokens)
	}
	if c.MaxBody < 0 {
		return c, fmt.Errorf("vllmtest: Config.MaxBody: %d is negative", c.MaxBody)
	}
	if c.MaxBody == 0 {
		c.MaxBody = 16 << 20
	}
	if c.TimeScale < 0 || math.IsNaN(c.TimeScale) || c.TimeScale > 1e6 {
		return c, fmt.Errorf("vllmtest: Config.TimeScale: %v is not in 0..1e6", c.TimeScale)
	}
	if c.TimeScale == 0 {
		c.TimeScale = 1
	}
	if c.Timing == (Timing{}) {
		c.Timing = defaultTiming
	}
	t := c.Timing
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"Step", float64(t.Step)}, {"PrefillToken", float64(t.PrefillToken)},
		{"PrefillAttention", t.PrefillAttention}, {"DecodeContext", t.DecodeContext},
	} {
		if !(f.v >= 0 && f.v <= float64(time.Hour)) {
			return c, fmt.Errorf("vllmtest: Config.Timing.%s: %v is not in 0..1 h", f.name, f.v)
		}
	}
	if c.Events != nil {
		if c.Instant {
			return c, fmt.Errorf("vllmtest: Config.Events: an Instant replica has no cache")
		}
		if err := c.Events.check(); err != nil {
			return c, err
		}
	}
	if c.Transfer != nil {
		if c.Instant {
			return c, fmt.Errorf("vllmtest: Config.Transfer: an Instant replica has no cache")
		}
		if err := c.Transfer.check(); err != nil {
			return c, err
		}
	}
	if c.Delay < 0 {
		return c, fmt.Errorf("vllmtest: Config.Delay: %v is negative", c.Delay)
	}
	if c.Delay > 0 && !c.Instant {
		return c, fmt.Errorf("vllmtest: Config.Delay: needs Instant")
	}
	if _, ok := dialects[c.Dialect]; !ok {
		return c, fmt.Errorf("vllmtest: Config.Dialect: %q is none", c.Dialect)
	}
	if c.Ranks > 1 && c.Instant {
		return c, fmt.Errorf("vllmtest: Config.Ranks: an Instant replica has no ranks")
	}
	if _, ok := rankLabels[c.Dialect]; c.Ranks > 1 && !ok {
		return c, fmt.Errorf("vllmtest: Config.Ranks: an engine of dialect %q has no ranks", c.Dialect)
	}
	for i, a := range c.Adapters {
		if a == "" || a == c.Model || slices.Contains(c.Adapters[:i], a) {
			return c, fmt.Errorf("vllmtest: Config.Adapters: %q is empty, the model's name or there twice", a)
		}
	}
	if c.MaxLoras < 0 || c.MaxLoras > 1024 {
		return c, fmt.Errorf("vllmtest: Config.MaxLoras: %d is not in 0..1024", c.MaxLoras)
	}
	if c.LoadTime < 0 || c.LoadTime > time.Hour {
		return c, fmt.Errorf("vllmtest: Config.LoadTime: %v is not in 0..1 h", c.LoadTime)
	}
	c.Adapters = slices.Clone(c.Adapters)
	c.served = newServed(c.Adapters)
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	return c, nil
}

// modelName is the name in metrics and in the list of models.
func (c *Config) modelName() string {
	if c.Model == "" {
		return defaultModel
	}
	return c.Model
}

// cost returns the time that a step takes, before TimeScale.
func (t Timing) cost(prefill int, attention, decodeContext float64) time.Duration {
	ns := float64(t.Step) + float64(t.PrefillToken)*float64(prefill) +
		t.PrefillAttention*attention + t.DecodeContext*decodeContext
	return time.Duration(min(ns, float64(24*time.Hour)))
}
