package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/warmroute/router/vllmtest"
)

const fakeHead = `Usage: warmroute fake [FLAGS]

Runs simulated vLLM replicas until it is interrupted: they answer the OpenAI and Anthropic APIs with text that says nothing,
keep a KV cache, take the time that real ones take, and have metrics and KV events.

Example:
  warmroute fake -n 4
`

// maxFakes bounds the replicas of one process.
const maxFakes = 256

// runFake runs simulated replicas until ctx is done.
func runFake(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("warmroute fake", flag.ContinueOnError)
	n := fs.Int("n", 2, "how many replicas")
	listen := fs.String("listen", "127.0.0.1:8000",
		"`address` of the first; each further one has the next port (port 0: any)")
	model := fs.String("model", "", "the `name` of the model (empty: every name is served)")
	speed := fs.Float64("speed", 1, "how many times as fast as real engines, which are a 70B model on two H100s")
	blocks := fs.Int("blocks", 0, "blocks of 16 tokens in each KV cache (0: 18,752)")
	events := fs.Bool("events", true, "publish KV events")
	if err := parse(fs, args, stderr, plainUsage(fakeHead)); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usagef("unexpected argument %q", fs.Arg(0))
	}
	host, first, err := net.SplitHostPort(*listen)
	port, perr := strconv.Atoi(first)
	switch {
	case err != nil || perr != nil || port < 0 || port+*n-1 > 65535:
		return usagef("-listen %q is not host:port, with ports for %d replicas", *listen, *n)
	case *n < 1 || *n > maxFakes:
		return usagef("-n is not 1 to %d", maxFakes)
	case !(*speed > 0) || *speed > 1e6:
		return usagef("-speed is not above 0 and at most 1e6")
	}
	var try strings.Builder
	for i := range *n {
		at := port
		if port > 0 {
			at += i
		}
		c := vllmtest.Config{Addr: net.JoinHostPort(host, strconv.Itoa(at)), Model: *model, Blocks: *blocks,
			TimeScale: 1 / *speed}
		if *events {
			c.Events = &vllmtest.Events{Addr: net.JoinHostPort(host, "0"), ReplayAddr: net.JoinHostPort(host, "0")}
		}
		s, err := vllmtest.New(c)
		if err != nil {
			return err
		}
		defer s.Close()
		fmt.Fprintf(stdout, "%s  metrics %s", s.URL, s.MetricsURL())
		fmt.Fprintf(&try, " -target %s", s.URL)
		if e := s.Events(); e != nil {
			fmt.Fprintf(stdout, "  KV events %s  replay %s", e.Endpoint(), e.ReplayEndpoint())
		}
		fmt.Fprintln(stdout)
	}
	fmt.Fprintf(stdout, "\nA gateway for them:\n  warmroute -debug 127.0.0.1:6060%s\n", try.String())
	<-ctx.Done()
	return nil
}
