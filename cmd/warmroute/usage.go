package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/warmroute/router/internal/nearest"
)

// groups are the flags of the gateway in the order of the help. Those in none of them come at its end.
var groups = []struct {
	title string
	flags []string
}{
	{"Targets", []string{"target", "strategy", "config", "watch", "check", "strict", "scrape", "probe", "attempts",
		"fail-open"}},
	{"Listening", []string{"listen", "tls-cert", "tls-key", "drain-delay", "grace", "debug", "debug-prompts", "admin",
		"pprof", "silent"}},
	{"TLS to engines", []string{"engine-ca", "engine-cert", "engine-key"}},
	{"least_work", []string{"miss-weight", "context-weight", "agree"}},
	{"precise_cache_aware", []string{"kv-events", "kv-topic", "tokens", "tokenize-timeout"}},
	{"Several gateways", []string{"share", "share-peer", "share-secret-env", "share-name"}},
	{"The waiting line", []string{"queue", "queue-requests", "queue-prefill", "queue-max", "queue-max-wait",
		"queue-cached-first", "queue-tenant-header", "queue-priority-header"}},
	{"Clients", []string{"max-memory", "max-requests", "max-body", "max-bodies", "client-share", "body-timeout",
		"body-rate", "write-timeout", "max-text", "open-path", "refuse-member", "allow-kv-transfer"}},
	{"Engines", []string{"header-timeout", "idle-timeout", "keep-alive", "heartbeat"}},
	{"Trying it", []string{"demo", "version"}},
}

const usageHead = `Usage: warmroute [COMMAND] [FLAGS]

Commands:
  serve       run the gateway; so it does without a command
  check       print the configuration in effect, with all defaults, and end
  demo        compare round_robin and least_work on simulated replicas
  fake        run simulated replicas, to try everything without a GPU
  explain     rank the targets of a running gateway for a request's body
  completion  print the completion for bash, zsh or fish
  version     print the version

warmroute COMMAND -h has the flags of each.

Example:
  warmroute -listen :8080 -target http://vllm-1:8000 -target http://vllm-2:8000
  warmroute -listen :8080 -config router.toml

A flag marked * stands in the file instead, if there is a -config.
`

// usage writes the help of the gateway's flags, by groups.
func usage(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprint(w, usageHead)
	written := make(map[string]bool)
	write := func(title string, names []string) {
		part := flag.NewFlagSet("", flag.ContinueOnError)
		part.SetOutput(w)
		any := false
		for _, n := range names {
			if f := fs.Lookup(n); f != nil {
				part.Var(f.Value, f.Name, f.Usage)
				part.Lookup(n).DefValue = f.DefValue
				written[n], any = true, true
			}
		}
		if any {
			fmt.Fprintf(w, "\n%s:\n", title)
			part.PrintDefaults()
		}
	}
	for _, g := range groups {
		write(g.title, g.flags)
	}
	var rest []string
	fs.VisitAll(func(f *flag.Flag) {
		if !written[f.Name] {
			rest = append(rest, f.Name)
		}
	})
	write("More", rest)
}

// parse parses args into fs, which prints nothing. Help goes to help; the error of a flag that there is not says which
// one may have been meant.
func parse(fs *flag.FlagSet, args []string, help io.Writer, print func(io.Writer, *flag.FlagSet)) error {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.Parse(args)
	if err == flag.ErrHelp {
		print(help, fs)
		return err
	}
	if err == nil {
		return nil
	}
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return &usageError{err}
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if best := nearest.Of(strings.TrimLeft(name, "-"), known); best != "" {
		return usagef("there is no flag -%s; did you mean -%s?", name, best)
	}
	return usagef("there is no flag -%s; -h lists them", name)
}

// plainUsage returns a printer of the help of one command.
func plainUsage(head string) func(io.Writer, *flag.FlagSet) {
	return func(w io.Writer, fs *flag.FlagSet) {
		fmt.Fprint(w, head)
		any := false
		fs.VisitAll(func(*flag.Flag) { any = true })
		if any {
			fmt.Fprint(w, "\nFlags:\n")
		}
		fs.SetOutput(w)
		fs.PrintDefaults()
	}
}

// commands are the names of the commands, sorted.
var commands = []string{"check", "completion", "demo", "explain", "fake", "serve", "version"}

// command returns the command that args name, and the arguments after it; "serve" if they begin with a flag.
func commandOf(args []string) (name string, rest []string, err error) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return "serve", args, nil
	}
	if args[0] == "help" {
		return "serve", []string{"-h"}, nil
	}
	if slices.Contains(commands, args[0]) {
		return args[0], args[1:], nil
	}
	if best := nearest.Of(args[0], commands); best != "" {
		return "", nil, usagef("there is no command %q; did you mean %s?", args[0], best)
	}
	return "", nil, usagef("there is no command %q; there are %s", args[0], strings.Join(commands, ", "))
}
