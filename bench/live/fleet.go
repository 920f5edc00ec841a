package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/warmroute/router/bench/loadgen"
	"github.com/warmroute/router/internal/ports"
)

const (
	engines   = 2
	modelName = "tiny"
	// blockSize is the least that the engine's kernels for the CPU take.
	blockSize = 32
	// maxLength is the greatest length of a prompt with its reply, in tokens.
	maxLength = 2048
	startup   = 10 * time.Minute // at most, of an engine
)

// fleet is two engines and the gateway before them.
type fleet struct {
	env    *environment
	dir    string // for the run's files; removed at its end
	blocks int    // of each engine's cache, but in the timed legs
	tags   string // of the gateway's build
	// The folder below dir of the engines' model, and their speculation as
	// --speculative-config takes it, empty for none.
	model, speculation string
	cache              int // blocks of each engine that is started

	engines [engines]*engine
	gateway *process
	// The gateway's.
	url, strategy string
}

// engine is one engine. Its addresses stay when it is started again.
type engine struct {
	name                 string
	http, events, replay string // host:port
	topic                string
	p                    *process // nil if it does not run
	peak                 int64    // bytes of memory, as seen
}

func (e *engine) url() string { return "http://" + e.http }

func newFleet(env *environment, dir string, blocks int, tags string) (*fleet, error) {
	f := &fleet{env: env, dir: dir, blocks: blocks, tags: tags, model: "model", cache: blocks}
	var taken []string
	address := func() (string, error) {
		for {
			a, err := ports.Free()
			if err != nil || !slices.Contains(taken, a) {
				taken = append(taken, a)
				return a, err
			}
		}
	}
	for i := range f.engines {
		e := &engine{name: fmt.Sprintf("engine-%d", i+1)}
		e.topic = "kv@" + e.name
		for _, a := range []*string{&e.http, &e.events, &e.replay} {
			var err error
			if *a, err = address(); err != nil {
				return nil, err
			}
		}
		f.engines[i] = e
	}
	return f, nil
}

// build builds the gateway.
func (f *fleet) build(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return loadgen.Build(ctx, filepath.Join(f.dir, "gateway"), loadgen.Gateway, f.tags)
}

// surroundings is the environment of the started processes: no settings for
// other programs and no proxies, and no files outside of the run's folder.
func (f *fleet) surroundings(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir, "TMPDIR=" + f.dir, "XDG_CACHE_HOME=" + f.dir,
		"LANG=C.UTF-8"}, more...)
}

// startEngine starts an engine; ready waits for it.
func (f *fleet) startEngine(e *engine) error {
	port := func(a string) string {
		_, p, _ := net.SplitHostPort(a)
		return p
	}
	events, err := json.Marshal(map[string]any{
		"enable_kv_cache_events": true, "publisher": "zmq", "topic": e.topic,
		"endpoint": "tcp://*:" + port(e.events), "replay_endpoint": "tcp://*:" + port(e.replay),
	})
	if err != nil {
		return err
	}
	args := []string{"--load-format", "dummy", "--kv-events-config", string(events)}
	if f.speculation != "" {
		args = append(args, "--speculative-config", f.speculation)
	}
	return f.serve(e, f.model, f.cache, nil, args...)
}

// serve starts an engine with a model, so many blocks, and further settings.
func (f *fleet) serve(e *engine, model string, cache int, env []string, args ...string) error {
	_, port, err := net.SplitHostPort(e.http)
	if err != nil {
		return err
	}
	args = append([]string{f.env.bin("vllm"), "serve", filepath.Join(f.dir, model), "--served-model-name", modelName,
		"--dtype", "float32", "--enforce-eager", "--host", "127.0.0.1", "--port", port,
		"--enable-prefix-caching", "--enable-prompt-tokens-details", "--max-num-seqs", "4",
		"--max-model-len", fmt.Sprint(maxLength), "--block-size", fmt.Sprint(blockSize), "--num-gpu-blocks-override",
		fmt.Sprint(cache)}, args...)
	e.p, err = start(e.name, f.dir, append(f.surroundings(
		"VLLM_SERVER_DEV_MODE=1", // for /reset_prefix_cache
		"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1",
		"VLLM_LOGGING_COLOR=0"), env...), args...)
	return err
}

func (f *fleet) ready(ctx context.Context, e *engine) error {
	err := e.p.await(ctx, e.url()+"/health", startup)
	e.peak = max(e.peak, groupMemory(e.p.group()))
	return err
}

func (f *fleet) startEngines(ctx context.Context) error {
	for _, e := range f.engines {
		if err := f.startEngine(e); err != nil {
			return err
		}
	}
	for _, e := range f.engines {
		if err := f.ready(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// startGateway starts the gateway with a strategy and waits until it listens.
func (f *fleet) startGateway(ctx context.Context, strategy string) error {
	addr, err := ports.Free()
	if err != nil {
		return err
	}
	args := []string{filepath.Join(f.dir, "gateway"), "-listen", addr, "-drain-delay", "0s", "-grace", "5s"}
	if strategy == leastWorkEvents {
		file := filepath.Join(f.dir, "gateway.toml")
		if err := os.WriteFile(file, f.eventsFile(), 0o600); err != nil {
			return err
		}
		args = append(args, "-config", file)
	} else {
		args = append(args, "-strategy", strategy)
		for _, e := range f.engines {
			args = append(args, "-target", e.url())
		}
	}
	if strategy == precise {
		// Its topic is a prefix: one for all.
		args = append(args, "-kv-topic", "kv@", "-tokens", "tokenize")
		for _, e := range f.engines {
			args = append(args, "-kv-events", "tcp://"+e.events+",tcp://"+e.replay)
		}
	}
	if f.gateway, err = start("gateway", f.dir, f.surroundings(), args...); err != nil {
		return err
	}
	f.url, f.strategy = "http://"+addr, strategy
	return f.gateway.await(ctx, f.url+"/healthz", time.Minute)
}

// eventsFile is the configuration of leastWorkEvents.
func (f *fleet) eventsFile() []byte {
	var b bytes.Buffer
	for _, e := range f.engines {
		fmt.Fprintf(&b, "[[providers]]\nname = %q\napi_base = %q\n[providers.kv_events]\nendpoint = %q\n"+
			"replay_endpoint = %q\ntopic = \"kv@\"\n", e.name, e.url(), "tcp://"+e.events, "tcp://"+e.replay)
	}
	fmt.Fprintf(&b, "[[routes]]\nmodel = %q\nstrategy = %q\n", modelName, leastWork)
	for _, e := range f.engines {
		fmt.Fprintf(&b, "[[routes.targets]]\nprovider = %q\nmodel = %q\n", e.name, modelName)
	}
	b.WriteString("[routes.token_source]\nkind = \"tokenize\"\n")
	return b.Bytes()
}

func (f *fleet) stopGateway() error {
	if f.gateway == nil {
		return nil
	}
	p := f.gateway
	f.gateway = nil
	return p.stop()
}

// stop ends all that runs.
func (f *fleet) stop() error { return errors.Join(f.stopGateway(), f.stopEngines()) }

func (f *fleet) stopEngines() error {
	var errs [engines]error
	var wg sync.WaitGroup
	for i, e := range f.engines {
		if e.p != nil {
			wg.Go(func() { errs[i] = e.p.stop() })
		}
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// resetCaches empties the engines' prefix caches. An idle engine reports it with
// the events of its next request: announce sends it one.
func (f *fleet) resetCaches(ctx context.Context, announce bool) error {
	for _, e := range f.engines {
		var reply struct{ Success *bool }
		if err := post(ctx, e.url()+"/reset_prefix_cache", nil, &reply); err != nil {
			return err
		}
		if reply.Success != nil && !*reply.Success {
			return fmt.Errorf("%s: it did not reset its prefix cache", e.name)
		}
		if !announce {
			continue
		}
		prompt := make([]int, 2*blockSize)
		for i := range prompt {
			prompt[i] = 10 + i
		}
		body := map[string]any{"model": modelName, "prompt": prompt, "max_tokens": 1}
		if err := post(ctx, e.url()+"/v1/completions", body, nil); err != nil {
			return err
		}
	}
	return nil
}

// once is a client that uses a connection once: engines close idle ones when they like.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post sends body as JSON to an engine and reads the reply into reply, which may
// be nil.
func post(ctx context.Context, url string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := once.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, resp.Status, b)
	}
	if err == nil && reply != nil && len(b) > 0 {
		err = json.Unmarshal(b, reply)
	}
	return err
}

// said returns the end of the gateway's output.
func (f *fleet) said() string {
	if f.gateway == nil {
		return ""
	}
	return f.gateway.said()
}
