package main

import (
	"flag"
	"io"
	"os"
	"time"

	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/strategy/leastwork"
)

// command is the flags, parsed.
type command struct {
	handler Config
	maxText int
	serve   server
	listen  string
	demo    bool

	fleet         fleetFlags
	live          string // -debug
	prompts       bool   // -debug-prompts
	file          string // -config
	watch         time.Duration
	check, strict bool
	version       bool

	tlsCert, tlsKey string
	pprof           bool
	admin           string // the variable with the token

	inFile map[string]bool // flags that a file takes the place of
}

// parseFlags parses the flags of the gateway. Help goes to stderr.
func parseFlags(args []string, stderr io.Writer) (*command, error) {
	fs, c := newFlags()
	if err := parse(fs, args, stderr, usage); err != nil {
		return nil, err
	}
	var twice string
	fs.Visit(func(f *flag.Flag) {
		if c.inFile[f.Name] {
			twice = f.Name
		}
	})
	f := &c.fleet
	switch {
	case fs.NArg() > 0:
		return nil, usagef("unexpected argument %q", fs.Arg(0))
	case c.demo, c.version:
	case c.maxText < 0:
		return nil, usagef("-max-text is negative")
	case c.watch < 0:
		return nil, usagef("-watch is negative")
	case (c.tlsCert == "") != (c.tlsKey == ""):
		return nil, usagef("-tls-cert and -tls-key go together")
	case c.pprof && c.live == "":
		return nil, usagef("-pprof needs -debug")
	case c.admin != "" && c.live == "":
		return nil, usagef("-admin needs -debug")
	case c.admin != "" && len(os.Getenv(c.admin)) < 16:
		return nil, usagef("-admin names an environment variable that is not set, or has fewer than 16 bytes")
	case c.file == "":
		if err := f.check(); err != nil {
			return nil, &usageError{err}
		}
	case twice != "":
		return nil, usagef("-%s is for a gateway without -config; the file says that", twice)
	}
	return c, nil
}

// newFlags returns the flags of the gateway, and the command that they set.
func newFlags() (*flag.FlagSet, *command) {
	c := &command{inFile: make(map[string]bool)}
	fs := flag.NewFlagSet("warmroute", flag.ContinueOnError)
	fs.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` to listen on")
	fs.BoolVar(&c.demo, "demo", false,
		"show round_robin and least_work side by side on replicas in this process, and end")
	fs.StringVar(&c.live, "debug", "",
		"`address` of a live page of decisions and their reasons, without a login: 127.0.0.1:6060, say (empty: none; with "+
			"-demo a port of its own)")
	fs.BoolVar(&c.prompts, "debug-prompts", false, "show the beginning and the end of prompts on the live page")
	fs.StringVar(&c.file, "config", "", "configuration `FILE`; it takes the place of the flags marked *")
	fs.DurationVar(&c.watch, "watch", 2*time.Second,
		"how often to look whether the -config has changed (0: never, only on SIGHUP)")
	fs.BoolVar(&c.check, "check", false, "print the configuration in effect, with all defaults, as a -config, and end")
	fs.BoolVar(&c.version, "version", false, "print the version, and end")
	fs.BoolVar(&c.strict, "strict", false,
		"take warnings about the configuration for errors, at the start and with -check")

	f := &c.fleet
	own := func(name string) string { c.inFile[name] = true; return name }
	fs.StringVar(&f.strategy, own("strategy"), leastwork.Name, "* how to choose a target: "+strategyNames())
	fs.Float64Var(&f.leastWork.MissWeight, own("miss-weight"), 0,
		"* least_work: the cost of a token that is not cached (0: 5)")
	fs.Float64Var(&f.leastWork.ContextWeight, own("context-weight"), 0,
		"* least_work: the cost of a token of context in flight (0: 0.2)")
	fs.Float64Var(&f.leastWork.Agree, own("agree"), 0,
		"* least_work: the share of the cost that several gateways may give to choose alike (0: none)")
	fs.Var(&f.targets, own("target"), "* `URL[=weight]` of a replica; give one for each")
	fs.Var(&f.events, own("kv-events"),
		"* `EVENTS[,REPLAY]`: endpoint of a replica's KV events, tcp://host:port each; give one for each -target, in the "+
			"same order")
	fs.StringVar(&f.topic, own("kv-topic"), "", "* beginning of the `topics` of KV events (empty: any)")
	fs.StringVar(&f.tokens, own("tokens"), file.TokensFromHeader,
		"* source of token ids, in addition to prompts of ids and the header: `header` (none), memo or tokenize")
	fs.DurationVar(&f.tokenizeTimeout, own("tokenize-timeout"), time.Second,
		"* -tokens tokenize: most time to find a prompt's ids before it is routed by its text")
	fs.IntVar(&f.failover.Attempts, own("attempts"), 3, "* most targets that one request is sent to")
	fs.BoolVar(&f.failover.FailOpen, own("fail-open"), false,
		"* if no target is ready, try one that is not instead of answering 503")
	fs.DurationVar(&f.scrape, own("scrape"), 0,
		"* how often to read each target's /metrics for the load of other gateways (0: never)")
	fs.DurationVar(&f.probe, own("probe"), 0,
		"* how often to ask each target's /health (0: never; the outcomes of requests always count)")

	fs.StringVar(&c.tlsCert, "tls-cert", "",
		"`FILE` of the certificate, and its chain, to listen with TLS; read again when it changes (empty: no TLS)")
	fs.StringVar(&c.tlsKey, "tls-key", "", "`FILE` of its key")
	fs.BoolVar(&c.pprof, "pprof", false, "serve Go's profiles on the -debug address, at /debug/pprof/")
	fs.StringVar(&c.admin, "admin", "",
		"environment `VARIABLE` with the bearer token of the admin API, which is on the -debug address then, at /admin/v1/ "+
			"(empty: there is none)")
	fs.StringVar(&f.tls.CAFile, own("engine-ca"), "",
		"* `FILE` of the authorities of the targets' certificates (empty: those of the system)")
	fs.StringVar(&f.tls.CertFile, own("engine-cert"), "",
		"* `FILE` of this gateway's certificate, for targets that want one")
	fs.StringVar(&f.tls.KeyFile, own("engine-key"), "", "* `FILE` of its key")

	sh := &f.share
	fs.Var(&sh.bus, own("share"),
		"* `URL` of the bus on which several gateways share their view: nats://host:port, redis://host:port, or "+
			"embedded://host:port for a NATS server in each gateway; give one for each server. A [share] in a -config has "+
			"more settings")
	fs.Var(&sh.peers, own("share-peer"),
		"* `host:port` of the embedded servers of all gateways; a name may have several addresses; may be repeated")
	fs.StringVar(&sh.secretEnv, own("share-secret-env"), "WARMROUTE_SHARE_SECRET",
		"* environment `VARIABLE` with the secret that all gateways of the fleet have, 16 bytes or more")
	fs.StringVar(&sh.name, own("share-name"), "", "* `name` of this gateway for the others (empty: the host's)")

	q := &f.queue
	fs.BoolVar(&q.enabled, own("queue"), false,
		"* let requests wait in a line while no target has a place for them, instead of in the engines; a [queue] in a "+
			"-config has more settings")
	fs.IntVar(&q.requests, own("queue-requests"), 0,
		"* -queue: requests in flight at a target of weight 1 at which it has no place (0: only when it refuses more)")
	fs.IntVar(&q.prefill, own("queue-prefill"), 0,
		"* -queue: tokens that wait for prefill at a target of weight 1 at which it has no place (0: any number)")
	fs.IntVar(&q.maxWaiting, own("queue-max"), admission.DefaultMaxWaiting, "* -queue: most requests that wait")
	fs.DurationVar(&q.maxWait, own("queue-max-wait"), admission.DefaultMaxWait, "* -queue: most time that a request waits")
	fs.DurationVar(&q.cachedFirst, own("queue-cached-first"), 0,
		"* -queue: how long a request lets those with a longer cached prefix go before it (0: by arrival)")
	fs.StringVar(&q.tenant, own("queue-tenant-header"), "",
		"* -queue: `HEADER` with a request's tenant, among whom places are shared (empty: the client's API key)")
	fs.StringVar(&q.priority, own("queue-priority-header"), "",
		"* -queue: `HEADER` with a request's priority, -100 to 100 (empty: all are alike)")

	fs.BoolVar(&f.kvTransfer, own("allow-kv-transfer"), false,
		"* pass on members such as kv_transfer_params, by which engines hand over KV caches (refused otherwise: from a "+
			"client they can end an engine)")
	fs.Var((*repeated)(&c.handler.OpenPaths), "open-path",
		"`PATH` of engines that clients may reach in addition to those of their APIs; with a * at the end, all that begin "+
			"so (* alone: every path, also those that change an engine); give one for each")
	fs.Var(&f.refuse, own("refuse-member"), "* `NAME` of a further member of requests that is refused; give one for each")

	fs.Int64Var(&f.maxMemory, own("max-memory"), 0,
		"* most `bytes` that clients and engines make the gateway hold at once: bodies, prompts, replies, events, token ids "+
			"(0: 2 GiB); [memory_shares] in a -config has the parts")

	h := &c.handler
	fs.IntVar(&c.maxText, "max-text", 0, "`bytes` of a prompt that are matched (0: all)")
	fs.Int64Var(&h.MaxBody, "max-body", 32<<20, "most `bytes` of one request body")
	fs.Int64Var(&h.MaxBodies, "max-bodies", 1<<30, "most `bytes` of all request bodies at once")
	fs.BoolVar(&h.Silent, "silent", false, "leave out the X-Warmroute headers, for clients that do not trust each other")
	fs.IntVar(&h.MaxRequests, "max-requests", 16384, "most requests at once")
	fs.DurationVar(&h.BodyTimeout, "body-timeout", time.Minute,
		"most time for a client to send the rest of its body, or -body-rate bytes a second")
	fs.Int64Var(&h.BodyRate, "body-rate", 8192, "least `bytes` a second of a body that takes longer than -body-timeout")
	fs.Float64Var(&h.ClientShare, "client-share", 0,
		"most of -max-bodies and -max-requests that one client's address may have, 0 to 1 (0: all; set it only if clients "+
			"connect themselves)")
	fs.DurationVar(&h.WriteTimeout, "write-timeout", time.Minute, "most time for a client to read a part of its reply")
	fs.DurationVar(&h.KeepAlive, "keep-alive", 4*time.Second,
		"how long an unused connection to a target is kept; less than the time after which the engines close it")
	fs.DurationVar(&h.Heartbeat, "heartbeat", 0,
		"how often a stream gets a comment line before its first token, which ends failing over for it (0: never)")
	fs.DurationVar(&h.HeaderTimeout, "header-timeout", 10*time.Minute, "most time for a target to begin its reply")
	fs.DurationVar(&h.IdleTimeout, "idle-timeout", 5*time.Minute, "most time between two parts of a reply")
	fs.DurationVar(&c.serve.drain, "drain-delay", 5*time.Second,
		"time to go on listening after SIGTERM, with /healthz at 503")
	fs.DurationVar(&c.serve.grace, "grace", time.Minute, "most time for replies to finish after that")
	return fs, c
}
