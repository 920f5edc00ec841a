// Package config makes running routers of a TOML file.
//
// [Load] reads a file and reports everything that is wrong with it at once, each
// problem with its line and column. That half is package file: its File has all that can
// be configured. [Build] makes a [Gateway] of it: a router for each route, found by the
// model that a request names, over one fleet with counters and health that all routes
// share. [Gateway.Run] starts it, and [Gateway.Reload] puts another file in its place
// without losing a request or the prompts that strategies remember.
//
// router.example.toml in this folder has every key. There are no secrets in a file: keys
// with the ending _env name environment variables.
//
// The package needs no ZeroMQ. A host that wants KV events passes a subscriber in
// [Options], which kvindex/zmqsub has.
package config

import (
	"context"
	"fmt"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/lmcache"
	"github.com/warmroute/router/loadview"
	"go.uber.org/zap"
)

// Options are the part of a configuration that stands in no file. The zero Options
// work: without KV events, logs and hooks, with the environment of the process.
type Options struct {
	// Strategies are the caller's own, by the name that the file uses, in addition to
	// or in place of those that [file.Strategies] returns. A name that is one of a
	// route's own keys is an error.
	Strategies map[string]file.Strategy
	// Subscribe returns a Runner that follows one engine's KV events. It starts nothing.
	// nil: KV events are not read, and the file's kv_events get a warning.
	Subscribe func(Subscription) (Runner, error)
	// LookupEnv finds environment variables; nil means os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Logger gets reloads, subscriptions that end and LMCaches that change; nil: no log.
	Logger *zap.Logger
	// Trace returns the hooks of a route's Router; nil means none. TraceRoute is the same for a host that needs more
	// of the route than its name, and takes the place of Trace.
	Trace      func(route string) router.Trace
	TraceRoute func(r *file.Route) router.Trace
	// Reloaded is called after every reload by [Gateway.ReloadFile] and [Gateway.Watch],
	// with the file that is in place now, or with the reason why it is not; may be nil.
	Reloaded func(f *file.File, err error)
	// View are hooks of the fleet, LMCache those of its poller. Their hooks must not
	// call Reload.
	View    loadview.Trace
	LMCache lmcache.Trace
	// Holders remembers which target has the state that a request refers to, for all routes; nil means one of the
	// Gateway's own with the default bounds.
	Holders *router.Holders
	// Peers are the other gateways of the fleet, for the fleet and the strategies of all routes: a *share.Share, which
	// the host runs, and with which it makes Holders. nil: nothing is shared.
	Peers router.Peers
	// Share returns the Peers and the Holders of a file's [share], if Peers is nil. [Build] calls it once, and nothing
	// but a new Gateway changes them: a Reload with another [share] is refused. nil: the file's share gets a warning.
	Share func(*file.Share) (router.Peers, *router.Holders, error)
	// Class returns the tenant and the priority of a request that waits in the file's
	// [queue], and QueueTrace has hooks of it, as admission.Config has them; both may be nil.
	Class      func(context.Context, router.Prompt) admission.Class
	QueueTrace admission.Trace
	// Rand is the source of jitter and ties, safe for concurrent use; nil means the
	// global source.
	Rand func() uint64
}

// Runner runs until its ctx is done.
type Runner interface {
	Run(ctx context.Context) error
}

// Subscription is a stream of KV events that a Runner puts into Index: that of one engine
// or of one data-parallel rank, under ID, or of several ranks.
type Subscription struct {
	ID string
	// Ranks are the targets of a stream that several ranks share, rank 0 first; ID is
	// then the stream's own name. nil: there is one rank, and its target is ID.
	Ranks            []string
	Endpoint, Replay string // tcp://host:port; Replay may be ""
	Topic            string // the beginning of the topics of its messages
	Index            *kvindex.Index
	Egress           egress.Policy
	StaleAfter       time.Duration // as zmqsub.Config has it: negative for not at all
	Logger           *zap.Logger   // may be nil
}

// Load reads and checks the file at path; see [file.Load].
func Load(path string, o Options) (*file.File, error) { return file.Load(path, o.file()) }

// Parse reads and checks a file's contents; see [file.Parse].
func Parse(data []byte, o Options) (*file.File, error) { return file.Parse("", data, o.file()) }

// file returns the part of o that a file is read with.
func (o Options) file() file.Options {
	return file.Options{Strategies: o.Strategies, LookupEnv: o.LookupEnv, KVEvents: o.Subscribe != nil,
		Share: o.Share != nil || o.Peers != nil}
}

// env returns the value of the environment variable that the file names at key.
func (o Options) env(key, name string) (string, error) {
	value, ok := o.file().Env(name)
	if !ok {
		return "", fmt.Errorf("config: %s names an environment variable that is not set", key)
	}
	return value, nil
}

func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
