package grpcbalancer

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

// server is a gRPC server before one replica: Chat takes a chat's JSON body and
// replies with it, ChatStream with one message for each line of it.
type server struct {
	addr    string
	replica *vllmtest.Server
	client  *http.Client

	mu sync.Mutex
	on *grpc.Server
}

const (
	chatMethod   = "/llm.Engine/Chat"
	streamMethod = "/llm.Engine/ChatStream"
)

// lines asks the replica and gives each line of its reply.
func (s *server) lines(ctx context.Context, body string, line func(string) error) error {
	req, err := http.NewRequestWithContext(ctx, "POST", s.replica.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	resp, err := s.client.Do(req)
	if err != nil && ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	} else if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer resp.Body.Close()
	switch c := resp.StatusCode; {
	case c == 429:
		return status.Error(codes.ResourceExhausted, resp.Status)
	case c >= 500:
		return status.Error(codes.Unavailable, resp.Status)
	case c >= 400:
		return status.Error(codes.InvalidArgument, resp.Status)
	}
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		if err := line(in.Text()); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

func (s *server) chat(ctx context.Context, body string) (*wrapperspb.StringValue, error) {
	var b strings.Builder
	err := s.lines(ctx, body, func(l string) error { b.WriteString(l); return nil })
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(b.String()), nil
}

// desc is what a generator would have made of the service.
var desc = grpc.ServiceDesc{
	ServiceName: "llm.Engine",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Chat", Handler: func(srv any, ctx context.Context, dec func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		return srv.(*server).chat(ctx, in.Value)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "ChatStream", ServerStreams: true,
		Handler: func(srv any, st grpc.ServerStream) error {
			in := new(wrapperspb.StringValue)
			if err := st.RecvMsg(in); err != nil {
				return err
			}
			return srv.(*server).lines(st.Context(), in.Value, func(l string) error { return st.SendMsg(wrapperspb.String(l)) })
		}}},
}

// start serves on the server's address, again after stop.
func (s *server) start(t testing.TB) {
	t.Helper()
	addr := s.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var l net.Listener
	until(t, "the address is free", func() bool {
		var err error
		l, err = net.Listen("tcp", addr)
		return err == nil
	})
	s.addr = l.Addr().String()
	g := grpc.NewServer()
	g.RegisterService(&desc, s)
	s.mu.Lock()
	s.on = g
	s.mu.Unlock()
	go g.Serve(l)
}

// stop breaks every connection and stream.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on.Stop()
}

type host struct {
	servers  []*server
	fleet    *loadview.View
	resolver *manual.Resolver
	conn     *grpc.ClientConn

	mu    sync.Mutex
	ended map[router.Stage]int
	first int
}

// mode is what of DialOptions a client has.
type mode int

const (
	full  mode = iota
	bare       // the service config only
	plain      // gRPC's own round_robin
)

// newHost returns a client of n servers.
func newHost(t testing.TB, n int, cfg vllmtest.Config, m mode) *host {
	t.Helper()
	h := &host{ended: make(map[router.Stage]int), resolver: manual.NewBuilderWithScheme("fleet")}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	for range n {
		s := &server{replica: vllmtest.NewServer(cfg), client: &http.Client{Transport: transport}}
		s.start(t)
		h.servers = append(h.servers, s)
	}
	h.resolver.InitialState(h.addresses(n))

	var err error
	if h.fleet, err = loadview.New(loadview.Config{CoolBase: 50 * time.Millisecond,
		CoolMax: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{
		Name:  names(),
		Fleet: h.fleet,
		Router: router.New(strategy, h.fleet, router.Options{Trace: router.Trace{
			FirstToken: func(context.Context, router.Decision) { h.mu.Lock(); h.first++; h.mu.Unlock() },
			Done: func(_ context.Context, _ router.Decision, o router.Outcome) {
				h.mu.Lock()
				if !o.NotSent { // which happens when a server has just come
					h.ended[o.Stage]++
				}
				h.mu.Unlock()
			},
		}}),
		// The request is a chat's body: it has the prompt.
		Prompt: func(_ string, md metadata.MD, request any) router.Prompt {
			m, ok := request.(*wrapperspb.StringValue)
			if !ok {
				return FromMetadata(md)
			}
			p, _ := prompt.FromChat([]byte(m.Value))
			return p
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	balancer.Register(b)
	opts := b.DialOptions()
	switch m {
	case bare:
		opts = opts[:1]
	case plain:
		opts = []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`)}
	}
	opts = append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(h.resolver),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond,
			Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}, MinConnectTimeout: 5 * time.Second}))
	if h.conn, err = grpc.NewClient("fleet:///llm", opts...); err != nil {
		t.Fatal(err)
	}
	h.conn.Connect()
	t.Cleanup(func() {
		h.idle(t)
		h.conn.Close()
		for _, s := range h.servers {
			s.stop()
			s.replica.Close()
		}
		transport.CloseIdleConnections()
	})
	if m == plain {
		until(t, "connected", func() bool { return h.conn.GetState() == connectivity.Ready })
		return h
	}
	h.ready(t, n)
	return h
}

func (h *host) addresses(n int) resolver.State {
	var s resolver.State
	for _, srv := range h.servers[:n] {
		s.Addresses = append(s.Addresses, resolver.Address{Addr: srv.addr})
	}
	return s
}

// ready waits until n of the targets are Ready.
func (h *host) ready(t testing.TB, n int) {
	t.Helper()
	until(t, "targets are Ready", func() bool {
		ready := 0
		for _, s := range h.fleet.Snapshot() {
			if s.Target.State == router.Ready {
				ready++
			}
		}
		return ready == n
	})
}

// idle waits until nothing is in flight any more, on any count.
func (h *host) idle(t testing.TB) {
	t.Helper()
	until(t, "all counts are 0", func() bool {
		return !slices.ContainsFunc(h.fleet.Snapshot(), func(s loadview.Status) bool {
			return s.Target.Load.InFlight != 0 || s.Target.Load.Prefill != 0
		})
	})
}

func (h *host) stages(s router.Stage) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended[s]
}

// busiest waits until a server is at work, and returns which has most to do.
func (h *host) busiest(t testing.TB) (busiest int) {
	until(t, "a server is at work", func() bool {
		all := h.fleet.Snapshot()
		for i, s := range all {
			if s.Target.Load.InFlight > all[busiest].Target.Load.InFlight {
				busiest = i
			}
		}
		return all[busiest].Target.Load.InFlight > 0
	})
	return busiest
}

// until waits for a condition that must come.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// chat is one unary RPC.
func (h *host) chat(ctx context.Context, body string) (string, error) {
	out := new(wrapperspb.StringValue)
	err := h.conn.Invoke(ctx, chatMethod, wrapperspb.String(body), out)
	return out.Value, err
}

// open begins a streamed reply.
func (h *host) open(ctx context.Context, body string) (grpc.ClientStream, error) {
	st, err := h.conn.NewStream(ctx, &desc.Streams[0], streamMethod)
	if err != nil {
		return nil, err
	}
	if err := st.SendMsg(wrapperspb.String(body)); err != nil {
		return nil, err
	}
	return st, st.CloseSend()
}
