// Package config makes running routers of a TOML file.
//
// [Load] reads a file and tells everything that is wrong with it at once, each
// with its line and column. [Build] makes a [Gateway] of it: a router for each
// route, found by the model that a request names, over one fleet whose counters
// and health all routes share. [Gateway.Reload] puts another file in its place
// without losing a request or what was learned.
//
// The file is described by [File]; router.example.toml beside the source has every
// key. There are no secrets in it: keys that end in _env name environment variables.
//
// The package needs no ZeroMQ. Who wants KV events passes a subscriber in
// [Options], which kvindex/zmqsub has.
package config

import (
	"context"
	"os"
	"reflect"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"go.uber.org/zap"
)

// Options are what a file cannot say. The zero Options work: without KV events,
// logs and hooks, with the environment of the process.
type Options struct {
	// Strategies are the caller's own, by the name that the file uses, beside or
	// instead of the library's. Names of a route's own keys are an error.
	Strategies map[string]Strategy
	// Subscribe makes what follows one engine's KV events. It starts nothing. nil:
	// KV events are not read, and the file's kv_events get a warning.
	Subscribe func(Subscription) (Runner, error)
	// LookupEnv finds environment variables; nil means os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Logger is told of reloads, of subscriptions that end and of LMCaches that
	// change; nil: nobody.
	Logger *zap.Logger
	// Trace returns the hooks of a route's Router; nil means none.
	Trace func(route string) router.Trace
	// Reloaded is told of every reload by [Gateway.ReloadFile] and [Gateway.Watch]: the
	// file now in place, or why it was not put there; nil: nobody.
	Reloaded func(f *File, err error)
	// View are hooks of the fleet, LMCache those of its poller. Their hooks must not
	// call Reload.
	View    loadview.Trace
	LMCache lmcache.Trace
	// Rand is the source of jitter and ties, safe for concurrent use; nil means the
	// global source.
	Rand func() uint64
}

// Runner is what runs until its ctx is done.
type Runner interface {
	Run(ctx context.Context) error
}

// Subscription is one engine, or one data-parallel rank, whose KV events are to
// be put into Index under ID, until Run's ctx is done.
type Subscription struct {
	ID string
	// Ranks are the targets of a stream that several ranks share, rank 0 first; ID is
	// then the stream's own name. nil: there is one rank, and its target is ID.
	Ranks            []string
	Endpoint, Replay string // tcp://host:port; Replay may be ""
	Topic            string // what the topics of its messages begin with
	Index            *kvindex.Index
	Egress           egress.Policy
	StaleAfter       time.Duration // as zmqsub.Config has it: negative for not at all
	Logger           *zap.Logger   // may be nil
}

// Load reads and checks the file at path; see [Parse]. A file that cannot be read
// is an error of package os.
func Load(path string, o Options) (*File, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return parseFile(path, data, o)
}

// Parse reads and checks a file's contents, with the strategies, the environment
// and the abilities that o has. Its error is an [*Error] with all problems, or one
// about o. The file's size, depth and number of keys are bounded.
func Parse(data []byte, o Options) (*File, error) { return parseFile("", data, o) }

func parseFile(name string, data []byte, o Options) (*File, error) {
	makers, err := o.makers()
	if err != nil {
		return nil, err
	}
	s, p := parse(data)
	if p != nil {
		return nil, &Error{Name: name, Problems: []Problem{*p}}
	}
	d := &decoder{source: s, makers: makers, bad: make(map[string]bool)}
	f := &File{name: name, data: data}
	d.table("", s.tree, reflect.ValueOf(f).Elem())
	c := checker{decoder: d, file: f, options: o}
	c.check()
	if len(d.problems) > 0 {
		return nil, &Error{Name: name, Problems: sortProblems(d.problems)}
	}
	f.resolve(makers)
	f.Warnings = sortProblems(d.warnings)
	return f, nil
}

// Policy returns the file's egress policy.
func (f *File) Policy() egress.Policy {
	return egress.Policy{
		AllowLinkLocal: !f.Egress.BlockLinkLocal,
		BlockLoopback:  f.Egress.BlockLoopback,
		BlockPrivate:   f.Egress.BlockPrivate,
		AllowHosts:     f.Egress.AllowHosts,
	}
}

func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (o Options) env(name string) (string, bool) {
	if o.LookupEnv != nil {
		return o.LookupEnv(name)
	}
	return os.LookupEnv(name)
}
