package main

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

// The defaults of Config.
const (
	DefaultMaxBody    = 32 << 20
	DefaultMaxBodies  = 1 << 30
	DefaultMaxStreams = 16384
	DefaultEndpoints  = 3
	DefaultRetryAfter = time.Second
)

// Config has the settings of New.
type Config struct {
	// Strategy chooses among the targets of Fleet. Their IDs are their addresses
	// in Envoy's form: "10.0.0.1:8000", "[2001:db8::1]:8000". Both are required.
	Strategy router.Strategy
	Fleet    router.Fleet
	// Options are the Router's. Its retries are not used: Envoy sends. With
	// Options.FailOpen a fleet without a Ready target is used all the same.
	Options router.Options
	// Parser reads the prompts; its MaxBody is not used.
	Parser prompt.Parser

	// Endpoints is how many are named to Envoy, the chosen one first and behind it
	// those to retry at. 0 means DefaultEndpoints. It must be 1 for a cluster of
	// type ORIGINAL_DST, which does not understand a list.
	Endpoints int
	// MaxLoad is the number of requests, in flight and queued, from which on a
	// target of weight 1 is full. If all Ready ones are full, a request is
	// answered with 429 and a Retry-After of RetryAfter (whole seconds, rounded
	// up; 0 means DefaultRetryAfter). 0: none ever is.
	MaxLoad    int
	RetryAfter time.Duration
	// PassOn lets a request for which no target is Ready go on without an endpoint,
	// for the cluster's own load balancing, instead of answering 503.
	PassOn bool

	// MaxBody is the longest request body in bytes; a longer one is answered with
	// 413. MaxBodies bounds the bodies of all requests in flight together, and
	// MaxStreams these requests; further ones are answered with 503. 0 means the
	// defaults.
	MaxBody, MaxStreams int
	MaxBodies           int64
	// Memory bounds the bodies, the prompts and the replies, by its accounts of these names; nil: one of
	// membudget's defaults. A request that does not fit is answered with 503, or with 413 if it never can. A body that
	// Envoy buffers is one message, which gRPC holds before it counts.
	Memory *membudget.Budget
}

// Processor is Envoy's external processor. It names the endpoints for each
// request and learns from the reply. It is safe for concurrent use and starts no
// goroutine.
type Processor struct {
	extproc.UnimplementedExternalProcessorServer
	cfg     Config
	router  *router.Router
	decoder *contentcoding.Decoder
	streams atomic.Int64
	bodies  atomic.Int64

	bodyMemory, promptMemory, replyMemory *membudget.Account
}

// New returns a Processor. Its error names every field of cfg with a bad value.
func New(cfg Config) (*Processor, error) {
	var errs []error
	if cfg.Strategy == nil {
		errs = append(errs, errors.New("extproc: Strategy is nil"))
	}
	if cfg.Fleet == nil {
		errs = append(errs, errors.New("extproc: Fleet is nil"))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Endpoints", int64(cfg.Endpoints)}, {"MaxLoad", int64(cfg.MaxLoad)}, {"RetryAfter", int64(cfg.RetryAfter)},
		{"MaxBody", int64(cfg.MaxBody)}, {"MaxBodies", cfg.MaxBodies}, {"MaxStreams", int64(cfg.MaxStreams)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("extproc: %s is negative", f.name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	cfg.Endpoints = or(cfg.Endpoints, DefaultEndpoints)
	cfg.RetryAfter = or(cfg.RetryAfter, DefaultRetryAfter)
	cfg.MaxBody = or(cfg.MaxBody, DefaultMaxBody)
	cfg.MaxBodies = or(cfg.MaxBodies, DefaultMaxBodies)
	cfg.MaxStreams = or(cfg.MaxStreams, DefaultMaxStreams)
	cfg.Parser.MaxBody = -1
	decoder, err := contentcoding.New(contentcoding.Config{MaxBytes: int64(cfg.MaxBody)})
	if err != nil {
		return nil, fmt.Errorf("extproc: %w", err)
	}
	if cfg.Memory == nil {
		if cfg.Memory, err = membudget.New(membudget.Config{}); err != nil {
			return nil, fmt.Errorf("extproc: %w", err)
		}
	}
	return &Processor{
		bodyMemory:   cfg.Memory.Account(membudget.Bodies),
		promptMemory: cfg.Memory.Account(membudget.Prompts),
		replyMemory:  cfg.Memory.Account(membudget.Replies),

		cfg: cfg, router: router.New(cfg.Strategy, gate{cfg.Fleet, cfg.MaxLoad}, cfg.Options), decoder: decoder,
	}, nil
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Router returns the Router that chooses: for Explain, and for Forget, which is to
// be called when a target has lost its cache.
func (p *Processor) Router() *router.Router { return p.router }

// Process serves one HTTP request. Whatever ends its stream settles the lease:
// the reply's end, an error, Envoy when the client is gone, the server's Stop.
func (p *Processor) Process(s extproc.ExternalProcessor_ProcessServer) error {
	counted, busy := false, false
	defer func() {
		if counted {
			p.streams.Add(-1)
		}
	}()
	x := &exchange{
		p: p, ctx: s.Context(), bytes: p.bodyMemory.Hold(), asked: p.promptMemory.Hold(), replied: p.replyMemory.Hold(),
	}
	defer x.end()
	for {
		in, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !counted { // a stream without a message takes no other's place
			counted, busy = true, p.streams.Add(1) > int64(p.cfg.MaxStreams)
		}
		var out []*extproc.ProcessingResponse
		if busy {
			err = errBusy
		} else {
			out, err = x.handle(in)
		}
		if err != nil {
			return s.Send(p.refuse(err))
		}
		for _, m := range out {
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}
}
