// Command peers runs published routers and this library's gateway, one after the
// other, before the same engines and under the same load, and prints one table.
// It installs the peers by name into an ignored Python environment. It uses
// loopback addresses only, and all processes that it starts end with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/workload"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run() error {
	rounds := flag.Int("rounds", 3, "how often each router is measured, by turns")
	only := flag.String("only", "", "measure the routers with one of these `words` in their names, separated by commas")
	python := flag.String("python", os.Getenv("PEERS_PYTHON"),
		"Python 3.11 for the peers' environment (default: $PEERS_PYTHON, else python3.11 on PATH)")
	venv := flag.String("venv", filepath.Join(".cache", "peers", "venv"),
		"`folder` of the peers' environment, made if it is missing")
	limit := flag.Duration("limit", 8*time.Minute,
		"begin no round that would not end within this, and break off one that does not; installing is not counted")
	engines := flag.Int("serve-engines", 0, "be so many engines and nothing else; used by the command itself")
	flag.Parse()
	if *engines > 0 {
		return serveEngines(*engines, os.Stdin, os.Stdout)
	}
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *rounds < 1:
		return fmt.Errorf("-rounds %d: want at least 1", *rounds)
	case runtime.GOOS != "linux":
		return errors.New("needs Linux: CPU and memory of another process are read from /proc")
	}
	// When interrupted, it still ends its processes. A second signal ends it
	// immediately, and the kernel ends the routers.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	env, err := install(ctx, *venv, *python)
	if err != nil {
		return err
	}
	say("building the gateway")
	for _, program := range []string{loadgen.Gateway, "github.com/warmroute/router/bench/budget"} {
		if err := loadgen.Build(ctx, filepath.Join(dir, filepath.Base(program)), program, ""); err != nil {
			return err
		}
	}
	all := routers(env, dir)
	if *only != "" {
		words := strings.Split(*only, ",")
		all = slices.DeleteFunc(all, func(r peer) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(r.name, w) })
		})
	}
	if len(all) == 0 {
		return fmt.Errorf("-only %s: no such router", *only)
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	return compare(ctx, all, *rounds, dir)
}

// compare measures the routers in rounds and prints the table, with the
// failures of routers below it.
func compare(ctx context.Context, all []peer, rounds int, dir string) error {
	start := time.Now()
	say("making the workload")
	chat := workload.Chat(workload.ChatConfig{})
	results := make([]result, len(all))
	var notes []string
	var longest time.Duration // of the rounds so far
	for round := range rounds {
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < longest {
			notes = append(notes, fmt.Sprintf("No round %d: a round took %s here, and there is -limit.", round+1,
				longest.Round(time.Second)))
			break
		}
		before, began := usageNow(), time.Now()
		for i := range all {
			// By turns, and each round from another one on: none is always first.
			k := (i + round*2) % len(all)
			p, r := all[k], &results[k]
			if p.broken != nil {
				continue
			}
			say("round %d of %d: %s", round+1, rounds, p.name)
			m, err := measure(ctx, p, chat, dir, r.slow)
			if ctx.Err() != nil {
				notes = append(notes, fmt.Sprintf("Ended in round %d: %v.", round+1, context.Cause(ctx)))
				return errors.Join(conclude(all, results, notes, start), context.Cause(ctx))
			}
			if err != nil {
				say("%s: %v", p.name, err)
				r.failures = append(r.failures, err)
				continue
			}
			m.round = round
			r.slow = r.slow || m.slow
			r.runs = append(r.runs, m)
		}
		notes = append(notes, fmt.Sprintf("Round %d: %s.", round+1, usageNow().since(before)))
		longest = max(longest, time.Since(began))
	}
	return conclude(all, results, notes, start)
}

// conclude prints the results so far.
func conclude(all []peer, results []result, notes []string, start time.Time) error {
	printTables(os.Stdout, all, results)
	for i, p := range all {
		switch {
		case p.broken != nil:
			fmt.Printf("- %s was not measured: %v\n", p.name, p.broken)
		case len(results[i].failures) > 0:
			fmt.Printf("- %s failed in %d of %d rounds: %v\n", p.name, len(results[i].failures), len(results[i].failures)+
				len(results[i].runs), results[i].failures[0])
		}
	}
	for i, p := range all {
		if results[i].slow {
			fmt.Printf("- %s took more than %s for the %d requests that the caches are judged by: one round of them counts.\n",
				p.name, tooLong, cached)
		}
	}
	for _, n := range notes {
		fmt.Println("- " + n)
	}
	fmt.Printf("- %s, %d CPUs, %s/%s, %s; %s for all.\n", time.Now().Format("2006-01-02 15:04"), runtime.NumCPU(),
		runtime.GOOS, runtime.GOARCH, processor(), time.Since(start).Round(time.Second))
	return nil
}

func say(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }
