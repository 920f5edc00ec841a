package file

import (
	"crypto/tls"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/tlsfiles"
	"github.com/warmroute/router/loadview"
)

// File is a configuration file, with the defaults of the keys that it does not have.
// Fields with the ending Secs are in seconds, and the bounds of the tags min and max
// are enforced. A table that is a pointer is nil if the file does not have it. A File
// must not be changed after [Parse].
type File struct {
	// MaxMemory bounds the bytes that a host holds of requests, replies and events together, and MemoryShares the parts of
	// it; see Memory.
	MaxMemory     int64         `toml:"max_memory" min:"16777216" max:"1099511627776"`
	MemoryShares  MemoryShares  `toml:"memory_shares"`
	Egress        Egress        `toml:"egress"`
	TLS           TLS           `toml:"tls"`
	MetricsScrape MetricsScrape `toml:"metrics_scrape"`
	HealthProbe   HealthProbe   `toml:"health_probe"`
	// Health configures the effect of failed requests. Its keys are the plain fields of
	// loadview's own Config in snake case (cool_after, cool_base, breaker ...).
	Health loadview.Config `toml:"health"`
	// Adapters configures the model of the engines' slots for LoRA adapters, from the start of the gateway on. Its keys
	// are the plain fields of adapters' own Config in snake case.
	Adapters  adapters.Config `toml:"adapters"`
	Requests  Requests        `toml:"requests"`
	Queue     Queue           `toml:"queue"`
	Share     Share           `toml:"share"`
	Providers []Provider      `toml:"providers"`
	Routes    []Route         `toml:"routes"`

	// Warnings are in the order of the file.
	Warnings []Problem `toml:"-"`

	name string
	data []byte // the contents, so that a change can be seen
}

// Egress configures which addresses may be reached; see package egress.
type Egress struct {
	BlockLinkLocal bool     `toml:"block_link_local"`
	BlockLoopback  bool     `toml:"block_loopback"`
	BlockPrivate   bool     `toml:"block_private"`
	AllowHosts     []string `toml:"allow_hosts"`
}

// TLS configures the connections to engines with addresses that begin with https: requests, and all that is read of
// engines. The files are PEM.
type TLS struct {
	// CAFile has the authorities that sign the engines' certificates; "": those of the system are trusted.
	CAFile string `toml:"ca_file"`
	// CertFile and KeyFile are this program's certificate and its key, for engines that want one. They are read again
	// when they change.
	CertFile string `toml:"cert_file"`
	KeyFile  string `toml:"key_file"`
}

// Config reads the files.
func (t *TLS) Config() (*tls.Config, error) { return tlsfiles.Client(t.CAFile, t.CertFile, t.KeyFile) }

// Requests configures which members a client's request must not have, and which paths it
// may reach. Package config does not read requests: the host does.
type Requests struct {
	// AllowKVTransfer passes on the members by which engines hand over KV caches to each
	// other, such as kv_transfer_params. Only a router of disaggregated engines in front
	// sends these; from a client they can end an engine's process.
	AllowKVTransfer bool `toml:"allow_kv_transfer"`
	// RefuseMembers are further members that are refused.
	RefuseMembers []string `toml:"refuse_members"`
	// OpenPaths are paths of the engines that clients may reach in addition to those of
	// their APIs: each a path, or with a * at its end the beginning of one.
	OpenPaths []string `toml:"open_paths"`
}

// Queue configures the line in which requests wait while no target has a place for them;
// see package admission. There is one for all routes, and each model has its own part of it.
type Queue struct {
	Enabled bool `toml:"enabled"`
	// Requests and Prefill are the requests of this process in flight, and their tokens
	// that wait for prefill, at which a target of weight 1 has no place for more. 0: any
	// number; then only a target that refuses more has no place.
	Requests int `toml:"requests" min:"0" max:"1000000"`
	Prefill  int `toml:"prefill" min:"0" max:"1000000000"`
	// CountOthers has Requests count those of other gateways that share their load, and
	// those that engines report.
	CountOthers bool `toml:"count_others"`
	// MaxWaiting, MaxBytes and MaxWaitSecs bound the requests that wait, the bytes of their
	// prompts, and how long each waits.
	MaxWaiting  int     `toml:"max_waiting" min:"1" max:"1000000"`
	MaxBytes    int     `toml:"max_bytes" min:"1" max:"1099511627776"`
	MaxWaitSecs float64 `toml:"max_wait_secs" min:"0.001" max:"3600"`
	// AgingSecs is how long a request waits behind higher priorities before it gets every
	// other place; -1: without a bound.
	AgingSecs float64 `toml:"aging_secs" min:"-1" max:"3600"`
	// Quantum is the number of tokens that a tenant uses in one round, and CachedPrice the
	// price of a cached token, if one that is not cached costs 1.
	Quantum     int     `toml:"quantum" min:"1" max:"1073741824"`
	CachedPrice float64 `toml:"cached_price" min:"0" max:"1"`
	// CachedFirstSecs is how long a request lets those with a longer cached prefix, of its
	// tenant and priority, go before it. 0: by arrival.
	CachedFirstSecs float64 `toml:"cached_first_secs" min:"0" max:"3600"`
	// Lookahead is how many requests are tried, and looked at for CachedFirstSecs, for one
	// place.
	Lookahead int `toml:"lookahead" min:"1" max:"4096"`
	// TenantHeader names the header of a request with the name of its tenant; "": the
	// client's API key is the tenant. PriorityHeader names the header with its priority, -100
	// to 100; "": all have the same. A client that can set them can go ahead of
	// others.
	TenantHeader   string `toml:"tenant_header"`
	PriorityHeader string `toml:"priority_header"`
}

// Config returns the settings as package admission has them, without hooks.
func (q *Queue) Config() admission.Config {
	c := admission.Config{
		Requests: q.Requests, CountOthers: q.CountOthers, Prefill: q.Prefill,
		MaxWaiting: q.MaxWaiting, MaxBytes: int64(q.MaxBytes),
		MaxWait: secs(q.MaxWaitSecs), Aging: secs(q.AgingSecs), Quantum: q.Quantum, CachedPrice: q.CachedPrice,
		CachedFirst: secs(q.CachedFirstSecs), Lookahead: q.Lookahead,
	}
	if c.CachedPrice == 0 {
		c.CachedPrice = -1
	}
	if c.Aging == 0 {
		c.Aging = 1 // at once
	}
	return c
}

func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// MetricsScrape configures how the engines' queues are read from their metrics pages.
// The page of data-parallel ranks behind one address is read once, and each rank takes
// its own part of it.
type MetricsScrape struct {
	Enabled      bool    `toml:"enabled"`
	IntervalSecs float64 `toml:"interval_secs" min:"0.1" max:"3600"`
	TimeoutSecs  float64 `toml:"timeout_secs" min:"0.01" max:"600"`
	Path         string  `toml:"path"`
}

// HealthProbe configures the requests for the engines' health.
type HealthProbe struct {
	Enabled      bool    `toml:"enabled"`
	IntervalSecs float64 `toml:"interval_secs" min:"0.1" max:"3600"`
	TimeoutSecs  float64 `toml:"timeout_secs" min:"0.01" max:"600"`
	Path         string  `toml:"path"`
	Failures     int     `toml:"failures" min:"1" max:"1000"`
	Successes    int     `toml:"successes" min:"1" max:"1000"`
}

// Provider is one server of engines, by the word of the file. Each of its ranks is a
// target.
type Provider struct {
	// Name is the ID of its target.
	Name string `toml:"name"`
	// Kind is openai_compatible; there is no other.
	Kind string `toml:"kind"`
	// APIBase is the server's http or https URL. A /v1 at its end is left out, because
	// requests have their own.
	APIBase string `toml:"api_base"`
	// APIKeyEnv names the environment variable of the key, which is sent as
	// "Authorization: Bearer KEY" with requests, scrapes and probes.
	APIKeyEnv string `toml:"api_key_env"`
	// HeadersEnv are further headers, each with the name of the environment variable of
	// its value.
	HeadersEnv map[string]string `toml:"headers_env"`
	// Ranks is the number of data-parallel ranks behind the address. Above 1 each
	// is a target of its own, NAME/0 and so on, of the weight that the route
	// gives the provider; it is asked for with the header X-data-parallel-rank and
	// publishes its events on the port of the first and its number.
	Ranks    int       `toml:"ranks" min:"1" max:"1024"`
	KVEvents *KVEvents `toml:"kv_events"`
	LMCache  *LMCache  `toml:"lmcache"`
	// Role is "prefill", "decode" or "both": a route with a target that is not for both
	// has prompts computed by one target and replies by another, if that pays. Zone and Connector have to be equal for two
	// targets to hand a KV cache over, and BootstrapPort is SGLang's.
	Role          string `toml:"role"`
	Zone          string `toml:"zone"`
	Connector     string `toml:"connector"`
	BootstrapPort int    `toml:"bootstrap_port" min:"1" max:"65535"`
}

// KVEvents configures the stream in which an engine publishes the blocks of its cache.
type KVEvents struct {
	// Endpoint is tcp://host:port, of rank 0 if there are several.
	Endpoint string `toml:"endpoint"`
	// ReplayEndpoint is the address that lost messages are requested from; "": there is
	// none.
	ReplayEndpoint string `toml:"replay_endpoint"`
	// Shared means that all ranks publish at Endpoint, in one stream with messages that
	// name the rank.
	Shared bool `toml:"shared"`
	// Topic is the beginning of the topics of its messages.
	Topic string `toml:"topic"`
	// MaxBlocks bounds the blocks that are remembered of one target. All targets have
	// one index, which uses the greatest bound of any provider.
	MaxBlocks int `toml:"max_blocks" min:"1" max:"1000000000"`
	// HostCredit, StorageCredit and RemoteCredit are the worth of a block that is in the host's memory, on a
	// disk, or on another machine alone, as a share of one on the device. As with MaxBlocks, the greatest of any
	// provider counts.
	HostCredit    float64 `toml:"host_credit" min:"0" max:"1"`
	StorageCredit float64 `toml:"storage_credit" min:"0" max:"1"`
	RemoteCredit  float64 `toml:"remote_credit" min:"0" max:"1"`
	// Recompute is the number of blocks at the end of each hit that engines compute again: 1 for vLLM up to 0.32
	// with EAGLE or MTP. 0 learns it for each target. The greatest of any provider counts.
	Recompute int `toml:"recompute" min:"0" max:"4"`
	// StaleSecs is how long the index stays trusted after the connection is lost.
	StaleSecs float64 `toml:"stale_secs" min:"0" max:"86400"`
}

// LMCache configures how the occupancy of an engine's LMCache is read.
type LMCache struct {
	Endpoint string `toml:"endpoint"`
	// Kind is the kind of document that is served there: "occupancy", "status" or
	// "metrics"; "" and "auto": any of them.
	Kind        string  `toml:"kind"`
	RefreshSecs float64 `toml:"refresh_secs" min:"0.1" max:"3600"`
	StaleSecs   float64 `toml:"stale_secs" min:"0.1" max:"86400"`
	TimeoutSecs float64 `toml:"timeout_secs" min:"0.01" max:"600"`
	// Watermark is the ratio, above 0 and at most 1, from which LMCache's own documents
	// count as full.
	Watermark float64 `toml:"watermark" min:"0.01" max:"1"`
	// HeadersEnv is as that of a Provider. The provider's own headers are not sent here.
	HeadersEnv map[string]string `toml:"headers_env"`
}

// Route configures which targets serve a model, and how one is chosen.
type Route struct {
	// Model is the name that requests use, or a pattern: with a * at its end it stands
	// for all names that begin with the part before.
	Model string `toml:"model"`
	// Aliases are further names. A request that uses one shares the caches of
	// those that name Model.
	Aliases []string `toml:"aliases"`
	// Adapters are the names of LoRA adapters of the model, which are the engines' own
	// names for them. Each has a cache of its own.
	Adapters []string `toml:"adapters"`
	// Strategy is the name of the strategy; least_work if the file has none.
	Strategy string `toml:"strategy"`
	// TokenSource configures the source of token ids; nil: only the requests.
	TokenSource *TokenSource `toml:"token_source"`
	// Failover is router's own Options. Its keys are the plain fields in snake case
	// (attempts, fail_open, backoff, max_backoff, max_retry_after ...).
	Failover router.Options `toml:"failover"`
	// Disagg configures how prefill and decode are split, if providers have roles; nil: by
	// the defaults.
	Disagg  *Disagg       `toml:"disagg"`
	Targets []RouteTarget `toml:"targets"`

	// Settings are the tables [routes.NAME], by the strategy's name: pointers to
	// its Config.
	Settings map[string]any `toml:"-"`

	strategy Strategy
}

// Disagg configures how prefill and decode are split; see package disagg.
type Disagg struct {
	// Protocol is "nixl", "stored", "sglang" or "sidecar".
	Protocol string `toml:"protocol"`
	// MinUncached is the least number of tokens not cached at the decode target, and
	// MinInFlight the least number of requests there, with which a prompt is computed elsewhere.
	MinUncached int `toml:"min_uncached" min:"0" max:"1000000000"`
	MinInFlight int `toml:"min_in_flight" min:"0" max:"1000000"`
	// Strict never has a decode target compute a prompt.
	Strict bool `toml:"strict"`
	// PrefillTimeoutSecs bounds an attempt at prefill, DecodeTimeoutSecs the first token after one,
	// PinnedSecs how long its blocks wait.
	PrefillTimeoutSecs float64 `toml:"prefill_timeout_secs" min:"0.001" max:"86400"`
	DecodeTimeoutSecs  float64 `toml:"decode_timeout_secs" min:"0.001" max:"86400"`
	PinnedSecs         float64 `toml:"pinned_secs" min:"0.001" max:"86400"`
}

// RouteTarget is one provider of a route.
type RouteTarget struct {
	Provider string `toml:"provider"`
	// Model is the engine's name for the model; "": the name in the request, and for an
	// alias the route's.
	Model string `toml:"model"`
	// Weight is the capacity of each of the provider's ranks.
	Weight float64 `toml:"weight"`
}

// The kinds of TokenSource.
const (
	TokensFromHeader   = "header"   // of the request, as package prompt reads it
	TokensFromMemo     = "memo"     // as well, or known from earlier replies
	TokensFromTokenize = "tokenize" // as well, or asked of an engine
)

// TokenSource configures the source of a route's token ids, which the host asks. It makes
// "text" the default fallback of precise_cache_aware.
type TokenSource struct {
	// Kind is "header", "memo" or "tokenize".
	Kind string `toml:"kind"`
	// TimeoutSecs bounds how long a request waits for its ids, and Concurrent the
	// number of requests that wait, for kind "tokenize".
	TimeoutSecs float64 `toml:"timeout_secs" min:"0.001" max:"60"`
	Concurrent  int     `toml:"concurrent" min:"1" max:"100000"`
	// MaxEntries and MaxBytes bound the ids that are remembered, for kinds "memo" and
	// "tokenize".
	MaxEntries int `toml:"max_entries" min:"1" max:"100000000"`
	MaxBytes   int `toml:"max_bytes" min:"1" max:"1099511627776"`
}

// The roles of a Provider.
const (
	RoleBoth    = "both"
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

var roles = []string{RoleBoth, RolePrefill, RoleDecode}

const kindOpenAI = "openai_compatible"

// RankHeader chooses among the data-parallel ranks behind one address (vLLM).
const RankHeader = "X-Data-Parallel-Rank"

// Name returns the name that the file was parsed with, Data its contents, which are not
// to be changed.
func (f *File) Name() string { return f.name }
func (f *File) Data() []byte { return f.data }

// Policy returns the file's egress policy.
func (f *File) Policy() egress.Policy {
	return egress.Policy{
		AllowLinkLocal: !f.Egress.BlockLinkLocal,
		BlockLoopback:  f.Egress.BlockLoopback,
		BlockPrivate:   f.Egress.BlockPrivate,
		AllowHosts:     f.Egress.AllowHosts,
	}
}
