package grpcbalancer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/warmroute/router"
)

type (
	callKey   struct{}
	promptKey struct{}
)

// WithPrompt returns a context for RPCs with this prompt.
func WithPrompt(ctx context.Context, p router.Prompt) context.Context {
	return context.WithValue(ctx, promptKey{}, p)
}

// The keys of FromMetadata. The text need not be all of the prompt: its beginning,
// as long as prompts have in common, does.
const (
	KeyModel   = "x-model"
	KeySession = "x-session-id"
	KeyText    = "x-prompt"
)

// FromMetadata returns the prompt that outgoing metadata names. They travel to the
// server, so a long text is better given by WithPrompt or Config.Prompt.
func FromMetadata(md metadata.MD) router.Prompt {
	first := func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	return router.Prompt{Model: first(KeyModel), Session: first(KeySession), Text: first(KeyText)}
}

// call is one RPC with all its attempts.
type call struct {
	prompt router.Prompt

	mu    sync.Mutex
	lease *router.Lease // of the attempt under way
	tried []string      // targets that failed
}

func (b *Balancer) newCall(ctx context.Context, method string, request any) *call {
	p, ok := ctx.Value(promptKey{}).(router.Prompt)
	if !ok {
		md, _ := metadata.FromOutgoingContext(ctx)
		p = b.cfg.Prompt(method, md, request)
	}
	return &call{prompt: p}
}

func (b *Balancer) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(context.WithValue(ctx, callKey{}, b.newCall(ctx, method, req)), method, req, reply, cc, opts...)
}

func (b *Balancer) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(context.WithValue(ctx, callKey{}, b.newCall(ctx, method, nil)), desc, cc, method, opts...)
}

// route leases a target for the next attempt: one that has not failed this RPC
// yet or, if there is none, any. gRPC's retry policy bounds the number of
// attempts.
func (c *call) route(ctx context.Context, r *router.Router) (*router.Lease, error) {
	c.mu.Lock()
	tried := slices.Clone(c.tried)
	c.mu.Unlock()
	lease, err := r.Route(ctx, c.prompt, tried...)
	if errors.Is(err, router.ErrNoTarget) && len(tried) > 0 {
		lease, err = r.Route(ctx, c.prompt)
	}
	if err == nil {
		c.mu.Lock()
		c.lease = lease
		c.mu.Unlock()
	}
	return lease, err
}

// done settles the lease of an attempt that has ended.
func (c *call) done(ctx context.Context, lease *router.Lease, d balancer.DoneInfo) {
	o := outcome(ctx, d)
	if o.Retryable() {
		c.mu.Lock()
		c.tried = append(c.tried, lease.Decision().Target.ID)
		c.mu.Unlock()
	}
	lease.Done(o)
}

// firstMessage sees the first message of a reply, which gRPC does not report to a
// picker.
type firstMessage struct{}

func (firstMessage) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InPayload); !ok {
		return
	}
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.mu.Lock()
		lease := c.lease
		c.mu.Unlock()
		if lease != nil {
			lease.FirstToken()
		}
	}
}

func (firstMessage) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (firstMessage) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (firstMessage) HandleConn(context.Context, stats.ConnStats)                       {}
