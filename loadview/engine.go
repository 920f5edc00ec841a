package loadview

import (
	"math"
	"time"

	"github.com/warmroute/router/loadview/enginepage"
)

// Dialect is the kind of engine that wrote a metrics page, by the names of its
// metrics: the Name of an enginepage.Dialect.
type Dialect string

// The names of the dialects that the library knows.
const (
	VLLM     Dialect = enginepage.VLLM
	SGLang   Dialect = enginepage.SGLang
	TensorRT Dialect = enginepage.TensorRT
	Triton   Dialect = enginepage.Triton
	TGI      Dialect = enginepage.TGI
	LlamaCpp Dialect = enginepage.LlamaCpp
	NIM      Dialect = enginepage.NIM
)

// Engine is the state that a member's last metrics page reported: of all engines
// under its address together, or of its [Member.Rank], and of all their clients.
type Engine struct {
	Dialect Dialect
	// Running are the requests in the batch, Waiting all others that the engine
	// has. -1: the page does not report it.
	Running, Waiting int
	// KVUsage is the share, 0 to 1, of the KV cache that running requests occupy (not
	// the part that is merely cached): of the fullest engine and on average. -1: the
	// page does not report it.
	KVUsage, KVUsageMean float64
	// Asleep reports that an engine sleeps (vLLM's sleep mode): it has given up its
	// cache, and maybe its weights, and serves nothing until it is woken.
	Asleep bool
	// Started is when the server's process began; the zero Time: the page does not
	// report it.
	Started time.Time
	// Age is the time since the page was read.
	Age time.Duration
}

// page is the state that a page reported, and when it was read.
type page struct {
	enginepage.State
	read time.Duration
}

// engine returns p as an Engine of this age.
func (p *page) engine(age time.Duration) Engine {
	e := Engine{
		Dialect: Dialect(p.Dialect), Running: p.Running, Waiting: p.Waiting,
		KVUsage: p.KVUsage, KVUsageMean: p.KVUsageMean, Asleep: p.Asleep, Age: age,
	}
	if p.Start >= 0 {
		e.Started = seconds(p.Start)
	}
	return e
}

// seconds returns the instant that is v seconds after 1970, the zero Time for one
// that is too far away.
func seconds(v float64) time.Time {
	if !(v < 1<<40) {
		return time.Time{}
	}
	whole, part := math.Modf(v)
	return time.Unix(int64(whole), int64(part*1e9))
}

// Engine returns the state that the member's last metrics page reported, for filters
// and scorers. It takes no lock. ok is false if the ID is no member of v and if no
// page was read within Scrape.StaleAfter: nothing is known then.
func (v *View) Engine(id string) (e Engine, ok bool) {
	m := v.roster.Load().byID[id]
	if m == nil {
		return Engine{}, false
	}
	p := m.page.Load()
	if p == nil {
		return Engine{}, false
	}
	age := max(v.now()-p.read, 0)
	if age >= v.cfg.Load().Scrape.StaleAfter {
		return Engine{}, false
	}
	return p.engine(age), true
}
