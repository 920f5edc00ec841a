package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/warmroute/router/bench/loadgen"
)

// runNodes runs a job in as many processes as there are nodes, and returns their results and what the bus's server
// used of the processor.
func (o *options) runNodes(ctx context.Context, kind string, j job) ([]result, time.Duration, error) {
	b, err := o.newBus(ctx, kind, o.nodes)
	if err != nil {
		return nil, 0, err
	}
	defer b.close()
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type child struct {
		cmd  *exec.Cmd
		in   io.WriteCloser
		out  *bufio.Reader
		tail loadgen.Tail
	}
	j.Epoch, j.Nodes, j.Warm, j.Measure = time.Now().UnixMicro(), o.nodes, o.warm, o.measure
	j.Rate /= float64(o.nodes)
	var children []*child
	defer func() {
		cancel() // it kills those that are left
		for _, c := range children {
			_ = c.in.Close()
			_ = c.cmd.Wait()
		}
	}()
	failed := func(c *child, err error) error {
		return errors.Join(fmt.Errorf("a node: %w: %s", err, c.tail.String()), ctx.Err())
	}
	for i := range o.nodes {
		c := &child{cmd: exec.CommandContext(ctx, self, nodeArg)}
		c.cmd.Env = append(os.Environ(), nodeEnv+"=1")
		c.cmd.Stderr = &c.tail
		if c.in, err = c.cmd.StdinPipe(); err != nil {
			return nil, 0, err
		}
		out, err := c.cmd.StdoutPipe()
		if err != nil {
			return nil, 0, err
		}
		c.out = bufio.NewReader(out)
		if err := c.cmd.Start(); err != nil {
			return nil, 0, err
		}
		children = append(children, c)
		j.Index, j.Bus = i, b.specs[i]
		if err := json.NewEncoder(c.in).Encode(j); err != nil {
			return nil, 0, failed(c, err)
		}
	}
	for _, c := range children {
		if _, err := c.out.ReadString('\n'); err != nil {
			return nil, 0, failed(c, err)
		}
	}
	for _, c := range children {
		if _, err := fmt.Fprintln(c.in); err != nil {
			return nil, 0, failed(c, err)
		}
	}
	var before, after time.Duration
	select {
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-time.After(o.warm):
		before, err = b.cpu()
	}
	if err != nil {
		return nil, 0, err
	}
	results := make([]result, len(children))
	for i, c := range children {
		line, err := c.out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &results[i])
		}
		if err != nil {
			return nil, 0, failed(c, err)
		}
	}
	if after, err = b.cpu(); err != nil {
		return nil, 0, err
	}
	return results, after - before, nil
}

// nodeEnv makes the test's program a node.
const nodeEnv = "WARMROUTE_GATEWAYS_NODE"

// total is the results of all nodes together.
type total struct {
	result
	seconds float64
}

func (o *options) total(rs []result) total {
	t := total{seconds: o.measure.Seconds()}
	for _, r := range rs {
		t.Done += r.Done
		t.Behind = max(t.Behind, r.Behind)
		t.Frames, t.Facts = append(t.Frames, r.Frames...), append(t.Facts, r.Facts...)
		t.CPU += r.CPU
		t.Sent += r.Sent
		t.Bytes += r.Bytes
		t.Dropped += r.Dropped
		t.Lost += r.Lost
		t.P50, t.P99 = max(t.P50, r.P50), max(t.P99, r.P99)
	}
	return t
}

// ms writes a time in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/1e6) }

// each returns what a share of d is in microseconds.
func each(d time.Duration, n int) string {
	return fmt.Sprintf("%.0f", float64(d)/1e3/float64(max(n, 1)))
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// busTable measures frames on the bare bus.
func busTable(ctx context.Context, o *options) error {
	fmt.Fprintf(o.out, "\nFrames of %d bytes among %d processes, each received by all:\n\n", o.frameSize, o.nodes)
	fmt.Fprintln(o.out, "| bus | frames/s | p50 ms | p99 ms | most ms | dropped | CPU us a frame: processes | server | load |")
	fmt.Fprintln(o.out, "|---|---|---|---|---|---|---|---|---|")
	for _, kind := range o.buses {
		if kind == "none" {
			continue
		}
		for _, rate := range o.rates {
			was := load()
			rs, server, err := o.runNodes(ctx, kind, job{Frames: true, Rate: rate, FrameSize: o.frameSize})
			if err != nil {
				return fmt.Errorf("%s, %.0f frames a second: %w", kind, rate, err)
			}
			t := o.total(rs)
			fmt.Fprintf(o.out, "| %s | %.0f | %s | %s | %s | %d | %s | %s | %s |\n", kind, float64(t.Done)/t.seconds,
				ms(quantile(t.Frames, 0.5)), ms(quantile(t.Frames, 0.99)), ms(quantile(t.Frames, 1)), t.Dropped,
				each(t.CPU, t.Done), each(server, t.Done), was)
		}
	}
	return nil
}

// shareTable measures processes that route and share.
func shareTable(ctx context.Context, o *options) error {
	fmt.Fprintf(o.out, "\nRequests of %d bytes (%d of them in no other) through %d processes, without HTTP:\n\n",
		o.prefix+o.unique, o.unique, o.nodes)
	fmt.Fprintln(o.out, "| bus | requests/s | frames/s | frame p50 ms | p99 ms | load seen p50 ms | p99 ms | "+
		"bytes a request | dropped, lost | CPU us a request: processes | server | load |")
	fmt.Fprintln(o.out, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, rate := range o.rates {
		for _, kind := range o.buses {
			was := load()
			rs, server, err := o.runNodes(ctx, kind, job{Rate: rate, Prefix: o.prefix, Unique: o.unique})
			if err != nil {
				return fmt.Errorf("%s, %.0f requests a second: %w", kind, rate, err)
			}
			t := o.total(rs)
			fmt.Fprintf(o.out, "| %s | %.0f | %.0f | %s | %s | %s | %s | %.0f | %d, %d | %s | %s | %s |\n", kind,
				float64(t.Done)/t.seconds, float64(t.Sent)/t.seconds,
				ms(quantile(t.Frames, 0.5)), ms(quantile(t.Frames, 0.99)), ms(quantile(t.Facts, 0.5)),
				ms(quantile(t.Facts, 0.99)), float64(t.Bytes)/float64(max(t.Done, 1)), t.Dropped, t.Lost,
				each(t.CPU, t.Done), each(server, t.Done), was)
		}
	}
	return nil
}
