package vllmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/ports"
)

// Server is one replica. Its methods are safe for concurrent use.
type Server struct {
	// URL is the base address, without a trailing slash: "http://127.0.0.1:4711".
	// It stays the same for the server's life.
	URL string

	cfg    Config
	addr   string
	http   *http.Server
	client *http.Client
	fixed  *fixedReply  // Instant's
	events []*Publisher // of each rank, the same one with Events.Shared; none without Config.Events

	lifecycle sync.Mutex   // one of SetFaults, Restart and Close at a time
	listener  net.Listener // nil while connections are refused
	closed    bool
	serving   sync.WaitGroup // accept loops
	conns     sync.WaitGroup // connections

	mu         sync.Mutex
	open       map[net.Conn]struct{}
	faults     Faults
	faultsLeft int
	woken      chan struct{} // closed when it wakes; nil: it is awake
	faulted    uint64
	past       Stats // the counts of earlier generations
	gen        *generation

	inFlight atomic.Int64 // generating requests, from their headers to their end
	ids      atomic.Uint64
	n        requestCounters
}

// requestCounters count over all generations.
type requestCounters struct {
	requests, finished, aborted, rejected, failed atomic.Uint64
	promptTokens, outputTokens                    atomic.Uint64 // of Instant replies
}

// generation is the replica from one start to the next.
type generation struct {
	engines []*engine // by rank
	ended   chan struct{}
	turn    atomic.Uint64

	// The Instant replies that had been counted before it.
	finishedBefore, promptBefore, outputBefore uint64
}

// Stats are a replica's counts since New, over all its restarts; the gauges are of
// the moment.
type Stats struct {
	// Requests arrived at the paths that generate, of these Finished got a whole
	// reply, Aborted were left by their client (or cut by a fault, Restart or
	// Close), Rejected found the replica full, Failed were answered with another
	// error. Those that are in none of these are in flight.
	Requests, Finished, Aborted, Rejected, Failed uint64
	// Faulted counts the requests, probes among them, that a fault was applied to.
	Faulted uint64
	// PromptTokens are those of prompts that were scheduled, CachedTokens the part
	// of them that was found in the cache, OutputTokens the generated ones.
	PromptTokens, CachedTokens, OutputTokens uint64
	// ExternalTokens are those of prompts that another replica had computed, Expired the
	// requests with blocks that no other replica fetched in time (Config.Transfer).
	ExternalTokens, Expired uint64
	// WrongBlocks are requests with parameters of blocks that another replica had fetched, or that were kept no
	// more. An engine notices nothing, and replies to a prompt that is not the client's.
	WrongBlocks uint64
	// Steps of the scheduler, sequences Preempted, cached blocks Evicted.
	Steps, Preempted, Evicted uint64
	Restarts                  uint64

	// Running and Waiting are sequences in the scheduler.
	Running, Waiting int
	// BlocksUsed are blocks in use, BlocksCached contents that can be reused,
	// whether in use or not.
	BlocksUsed, BlocksCached int
}

var errClosed = errors.New("vllmtest: the server is closed")

// New starts a replica. A bad Config is an error that names the field. The
// caller calls Close.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, addr: cfg.Addr, open: make(map[net.Conn]struct{})}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ConnState:         s.connState,
		ErrorLog:          log.New(io.Discard, "", 0), // connections that faults break are no news
	}
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	if cfg.Instant {
		s.fixed = newFixedReply(&s.cfg)
	}
	if cfg.Events != nil {
		if s.events, err = newPublishers(*cfg.Events, cfg.Ranks); err != nil {
			return nil, err
		}
	}
	s.gen = s.newGeneration()
	if err := s.listen(); err != nil {
		s.gen.close()
		closePublishers(s.events)
		return nil, err
	}
	s.URL = "http://" + s.addr
	return s, nil
}

// NewServer is New for tests: it panics if New fails, as httptest.NewServer
// does.
func NewServer(cfg Config) *Server {
	s, err := New(cfg)
	if err != nil {
		panic(err)
	}
	return s
}

func (s *Server) newGeneration() *generation {
	g := &generation{
		ended:          make(chan struct{}),
		finishedBefore: s.n.finished.Load(), promptBefore: s.n.promptTokens.Load(), outputBefore: s.n.outputTokens.Load(),
	}
	for i := range s.cfg.Ranks {
		var log *eventLog
		if s.events != nil {
			log = &eventLog{cfg: &s.events[i].cfg, rank: s.cfg.Events.Rank + i, out: s.events[i]}
		}
		g.engines = append(g.engines, startEngine(&s.cfg, log))
	}
	return g
}

// Client returns an HTTP client that keeps connections to the server. Close
// closes those.
func (s *Server) Client() *http.Client { return s.client }

// Events returns the publisher of the replica's KV events, that of the first rank if
// there are several, nil without Config.Events. The server closes it.
func (s *Server) Events() *Publisher { return s.RankEvents(0) }

// RankEvents returns the publisher of the KV events of a rank, counted from 0; nil
// without Config.Events and for a rank that there is not. With Events.Shared it is
// the same for all. The server closes it.
func (s *Server) RankEvents(rank int) *Publisher {
	if rank < 0 || rank >= len(s.events) {
		return nil
	}
	return s.events[rank]
}

// Addr returns the address that the server listens on, "127.0.0.1:4711".
func (s *Server) Addr() string { return s.addr }

// MetricsURL returns the address of the metrics page, at which the dialect
// has it.
func (s *Server) MetricsURL() string { return s.URL + s.cfg.metricsPath() }

// listen opens the socket if it is closed. The caller holds lifecycle, or is
// New.
func (s *Server) listen() error {
	if s.listener != nil {
		return nil
	}
	l, err := ports.Listen(s.addr)
	if err != nil {
		return fmt.Errorf("vllmtest: listen: %w", err)
	}
	s.listener, s.addr = l, l.Addr().String()
	s.http.SetKeepAlivesEnabled(true)
	s.serving.Go(func() { _ = s.http.Serve(l) }) // it ends when l is closed
	return nil
}

// unlisten closes the socket if it is open, and idle connections.
func (s *Server) unlisten() {
	if s.listener == nil {
		return
	}
	_ = s.listener.Close()
	s.listener = nil
	s.serving.Wait()
	s.http.SetKeepAlivesEnabled(false)
}

func (s *Server) connState(c net.Conn, st http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st {
	case http.StateNew:
		s.open[c] = struct{}{}
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		if _, ok := s.open[c]; ok {
			delete(s.open, c)
			s.conns.Done()
		}
	}
}

// current returns the generation that a request which arrives now belongs to.
func (s *Server) current() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gen
}

// endConns breaks every connection.
func (s *Server) endConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Close()
	}
}

// Restart is the crash and the new start of the replica, with nothing between
// them: every connection breaks, the cache is empty, the counters of /metrics
// begin at 0, and faults are as they were. For a replica that stays away for a
// while, set Faults.Refuse before and clear it after.
func (s *Server) Restart() error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.closed {
		return errClosed
	}
	s.cfg.served.reset()
	next := s.newGeneration()
	s.mu.Lock()
	old := s.gen
	old.close()
	for i, p := range s.events {
		if i == 0 || p != s.events[0] {
			p.Restart()
		}
	}
	for _, e := range old.engines {
		s.past.add(e.snapshot())
	}
	s.past.Running, s.past.Waiting, s.past.BlocksUsed, s.past.BlocksCached = 0, 0, 0, 0
	s.past.Restarts++
	s.gen = next
	s.mu.Unlock()
	close(old.ended)
	s.endConns()
	return nil
}

// Close stops the replica, breaks its connections and returns when all its
// goroutines have ended. Further calls do nothing.
func (s *Server) Close() {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	g := s.current()
	close(g.ended)
	s.unlisten()
	_ = s.http.Close()
	s.endConns()
	g.close()
	closePublishers(s.events)
	s.conns.Wait()
	s.client.CloseIdleConnections()
}

// Stats returns the replica's counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	st := s.past
	for _, e := range s.gen.engines {
		st.add(e.snapshot())
	}
	st.Faulted = s.faulted
	s.mu.Unlock()
	st.Requests, st.Finished, st.Aborted = s.n.requests.Load(), s.n.finished.Load(), s.n.aborted.Load()
	st.Rejected, st.Failed = s.n.rejected.Load(), s.n.failed.Load()
	st.PromptTokens += s.n.promptTokens.Load()
	st.OutputTokens += s.n.outputTokens.Load()
	return st
}

// RankStats returns the counts of a rank, from 0, since the last Restart, as far as
// they are the rank's own: tokens, steps and the fields after them. The
// zero Stats for a rank that there is not.
func (s *Server) RankStats(rank int) Stats {
	var st Stats
	if g := s.current(); rank >= 0 && rank < len(g.engines) {
		st.add(g.engines[rank].snapshot())
	}
	return st
}

// add adds the counts of one engine.
func (st *Stats) add(e snapshot) {
	st.PromptTokens += e.promptTokens
	st.CachedTokens += e.cachedTokens
	st.OutputTokens += e.outputTokens
	st.ExternalTokens += e.external
	st.Expired += e.expired
	st.WrongBlocks += e.wrong
	st.Steps += e.steps
	st.Preempted += e.preempted
	st.Evicted += e.evicted
	st.Running += e.running
	st.Waiting += e.waiting
	st.BlocksUsed += e.blocksUsed
	st.BlocksCached += e.blocksCached
}

// sleep waits for d. It returns false if the client or the generation ended
// first.
func (g *generation) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-g.ended:
	}
	return false
}
