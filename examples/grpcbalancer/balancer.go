// Package grpcbalancer is a gRPC-Go balancer that picks for each RPC the server
// that can answer soonest, because it already holds the prompt's KV cache and is
// not too busy.
package grpcbalancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// Name is the default of Config.Name.
const Name = "warmroute"

// Config has the settings of a Balancer.
type Config struct {
	// Name is the policy's name in gRPC's registry and in service configs; ""
	// means Name.
	Name string
	// Router chooses among the members of Fleet, which the Balancer sets: one for
	// each address that the resolver gives, by that address as ID.
	Router *router.Router
	Fleet  *loadview.View
	// Prompt makes the prompt of an RPC out of its outgoing metadata and, for one
	// with a single request, its message; nil for others. nil means FromMetadata.
	// A prompt that WithPrompt put into the RPC's context comes before it.
	Prompt func(method string, md metadata.MD, request any) router.Prompt
}

// Balancer builds the load-balancing policy of one ClientConn, and of one at a
// time. It keeps its state while the ClientConn is idle. It is safe for
// concurrent use.
type Balancer struct {
	cfg    Config
	policy balancer.Builder
}

// New returns a Balancer, for balancer.Register. Its error names the field.
func New(cfg Config) (*Balancer, error) {
	switch {
	case cfg.Router == nil:
		return nil, errors.New("grpcbalancer: Config.Router is missing")
	case cfg.Fleet == nil:
		return nil, errors.New("grpcbalancer: Config.Fleet is missing")
	}
	cfg.Name = cmp.Or(cfg.Name, Name)
	if cfg.Prompt == nil {
		cfg.Prompt = func(_ string, md metadata.MD, _ any) router.Prompt { return FromMetadata(md) }
	}
	b := &Balancer{cfg: cfg}
	b.policy = base.NewBalancerBuilder(cfg.Name, &pickers{b}, base.Config{HealthCheck: true})
	return b, nil
}

// DialOptions returns the options that a ClientConn needs for the registered
// Balancer: a service config that names it and sends an RPC again, up to twice, if
// a server was not available; interceptors that give each RPC its prompt; and a
// stats handler that sees the first message of a reply. It replaces the default
// service config; a resolver's own one wins.
func (b *Balancer) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultServiceConfig(
			fmt.Sprintf(`{"loadBalancingConfig": [{%q: {}}], "methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 3, "initialBackoff": "0.025s", "maxBackoff": "1s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}}]}`, b.cfg.Name)),
		grpc.WithChainUnaryInterceptor(b.unary),
		grpc.WithChainStreamInterceptor(b.stream),
		grpc.WithStatsHandler(firstMessage{}),
	}
}

// Name is Config.Name.
func (b *Balancer) Name() string { return b.cfg.Name }

// Build is called by gRPC.
func (b *Balancer) Build(cc balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	w := &watcher{ClientConn: cc, fleet: b.cfg.Fleet, conns: make(map[string]balancer.SubConn)}
	return &policy{Balancer: b.policy.Build(w, o), watcher: w}
}

// policy is base's balancer, which keeps a connection to each address.
type policy struct {
	balancer.Balancer
	watcher *watcher
}

// UpdateClientConnState makes the resolver's addresses the fleet's members.
func (p *policy) UpdateClientConnState(s balancer.ClientConnState) error {
	if err := p.watcher.members(s.ResolverState.Addresses); err != nil {
		return err
	}
	return p.Balancer.UpdateClientConnState(s)
}

// watcher passes the connections' states on to the fleet. gRPC serialises the
// calls.
type watcher struct {
	balancer.ClientConn
	fleet *loadview.View
	conns map[string]balancer.SubConn // the members, by address; nil before their SubConn is there
}

func (w *watcher) members(addrs []resolver.Address) error {
	conns := make(map[string]balancer.SubConn, len(addrs))
	var members []loadview.Member
	for _, a := range addrs {
		if _, ok := conns[a.Addr]; ok {
			continue
		}
		conns[a.Addr] = w.conns[a.Addr]
		members = append(members, loadview.Member{ID: a.Addr})
	}
	if err := w.fleet.Set(members); err != nil {
		return err
	}
	for id, sc := range conns {
		if sc == nil { // not connected yet
			w.state(id, connectivity.Idle)
		}
	}
	w.conns = conns
	return nil
}

// NewSubConn is called by base for each address.
func (w *watcher) NewSubConn(addrs []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	id, tell := addrs[0].Addr, o.StateListener
	var sc balancer.SubConn
	o.StateListener = func(s balancer.SubConnState) {
		if w.conns[id] == sc { // not one that was replaced
			w.state(id, s.ConnectivityState)
		}
		tell(s)
	}
	//lint:ignore SA1019 only several addresses for each are deprecated, and base gives one
	sc, err := w.ClientConn.NewSubConn(addrs, o)
	if err == nil {
		w.conns[id] = sc
	}
	return sc, err
}

func (w *watcher) state(id string, s connectivity.State) {
	// An address that the resolver has taken away is no member: that is no error.
	_ = w.fleet.SetUnhealthy(id, s != connectivity.Ready)
}

// picker picks among the connections that were ready when it was built.
type picker struct {
	*Balancer
	ready map[string]balancer.SubConn // by address
}

// pickers builds base's picker at each change.
type pickers struct{ *Balancer }

// Build is called by base.
func (b *pickers) Build(info base.PickerBuildInfo) balancer.Picker {
	p := &picker{Balancer: b.Balancer, ready: make(map[string]balancer.SubConn, len(info.ReadySCs))}
	for sc, i := range info.ReadySCs {
		p.ready[i.Address.Addr] = sc
	}
	return p
}

// Pick takes a lease, which the RPC's Done settles.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	c, _ := info.Ctx.Value(callKey{}).(*call)
	if c == nil { // without our interceptors
		c = p.newCall(info.Ctx, info.FullMethodName, nil)
	}
	lease, err := c.route(info.Ctx, p.cfg.Router)
	switch {
	case errors.Is(err, router.ErrNoTarget):
		return balancer.PickResult{}, p.none(err)
	case info.Ctx.Err() != nil:
		return balancer.PickResult{}, status.FromContextError(info.Ctx.Err()).Err()
	case err != nil:
		return balancer.PickResult{}, status.Error(codes.Unavailable, err.Error())
	}
	sc := p.ready[lease.Decision().Target.ID]
	if sc == nil { // it became ready after this picker was built; the next one is on its way
		lease.Done(unsent)
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{SubConn: sc, Done: func(d balancer.DoneInfo) { c.done(info.Ctx, lease, d) }}, nil
}

// none returns the error of an RPC without a target. The RPC waits for the next
// picker if one follows, because connections were lost. It ends if only time
// would help, because gRPC would not learn of it.
func (p *picker) none(err error) error {
	for _, m := range p.cfg.Fleet.Snapshot() {
		if p.ready[m.Target.ID] != nil && m.Target.State != router.Unhealthy {
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	return balancer.ErrNoSubConnAvailable
}

// unsent is the outcome of an RPC for a chosen target with a lost connection.
var unsent = router.Outcome{NotSent: true, Err: balancer.ErrNoSubConnAvailable}

// outcome translates how an RPC ended. Codes of the caller's own making are 4xx.
func outcome(ctx context.Context, d balancer.DoneInfo) router.Outcome {
	if d.Err == nil && !d.BytesSent && !d.BytesReceived {
		return unsent // as gRPC says so
	}
	o := router.Outcome{Stage: router.Failed, Err: d.Err}
	switch {
	case status.Code(d.Err) == codes.OK:
		return router.Outcome{Stage: router.Finished, Status: 200}
	case errors.Is(context.Cause(ctx), router.ErrAttemptTimeout): // the caller's bound of a try, not its end
		o.Err = fmt.Errorf("%w: %w", router.ErrAttemptTimeout, d.Err)
		return o
	}
	switch status.Code(d.Err) {
	case codes.Canceled:
		o.Stage = router.Canceled
	case codes.DeadlineExceeded:
		o.Status = 504
		// The caller's own deadline, which the server may have seen before ctx did.
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			o.Stage = router.Canceled
		}
	case codes.Unavailable:
		o.Status = 503
	case codes.ResourceExhausted:
		o.Status = 429
	case codes.Unknown, codes.Internal, codes.DataLoss:
		o.Status = 500
	default: // InvalidArgument, NotFound, Unimplemented and the like
		o.Status = 400
	}
	if v := d.Trailer.Get("grpc-retry-pushback-ms"); len(v) == 1 {
		if ms, err := strconv.ParseUint(v[0], 10, 31); err == nil {
			o.RetryAfter = time.Duration(ms) * time.Millisecond
		}
	}
	return o
}
