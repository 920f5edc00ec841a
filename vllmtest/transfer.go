package vllmtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Transfer makes a replica one of a group that hand KV caches over to each other, as engines
// that prefill and engines that decode do. What a request gets of it depends on its members:
//
//   - "nixl", as vLLM's NixlConnector: kv_transfer_params with do_remote_decode has the blocks of the
//     prompt kept for PinnedFor, unless the reply ended by itself, and the reply has the parameters for
//     another replica, once. Parameters of a process that has ended are a 500 at once. Those of blocks that were
//     fetched, or are kept no more, are not noticed: the replica reads the blocks, which may be other prompts', and its
//     reply has another text than that of the prompt (Stats.WrongBlocks). Parameters of do_remote_prefill without a
//     remote_host end the process, as Restart does.
//   - "stored": the replica writes the blocks of each prompt that it has computed to the Hub, and reads those there.
//   - "sglang": bootstrap_room. A replica that decodes waits for the one that prefills with the same number, if need
//     be for ever, and refuses a request without one.
//
// As engines do, the replica that decodes reports the cached_tokens of the one that has computed
// the prompt, with "nixl" and "sglang".
type Transfer struct {
	// Hub is the network between the replicas of the group. It is needed.
	Hub *Hub
	// Protocol is "nixl", "stored" or "sglang".
	Protocol string
	// Decodes is true for an SGLang engine that decodes, false for one that prefills.
	Decodes bool
	// PinnedFor is how long blocks wait to be fetched, whatever TimeScale; 0 means 30 s.
	PinnedFor time.Duration
	// Token is the time to hand over a token, before TimeScale; 0 means 2 us.
	Token time.Duration
}

// Hub connects replicas that hand KV caches over. The zero Hub is ready to use and may be
// shared by any number of replicas.
type Hub struct {
	mu      sync.Mutex
	ids     uint64
	pinned  map[string]*handle
	engines map[string]*generation // by the ID in the parameters
	rooms   map[int64]*meeting
	stored  map[blockKey]struct{}
	pending int
}

// maxStored bounds the blocks of a Hub; then it is emptied.
const maxStored = 1 << 20

// handle are blocks that wait to be fetched.
type handle struct {
	g   *generation
	seq *seq
}

// meeting is where the two replicas of an SGLang request meet.
type meeting struct {
	ready chan struct{} // closed when h is there
	h     *handle
}

// Pinned returns the number of prompts with blocks that wait to be fetched.
func (h *Hub) Pinned() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pending
}

func (t *Transfer) check() error {
	switch {
	case t.Hub == nil:
		return fmt.Errorf("vllmtest: Config.Transfer.Hub: is nil")
	case t.Protocol != "nixl" && t.Protocol != "stored" && t.Protocol != "sglang":
		return fmt.Errorf("vllmtest: Config.Transfer.Protocol: %q is none", t.Protocol)
	case t.PinnedFor < 0 || t.Token < 0:
		return fmt.Errorf("vllmtest: Config.Transfer: a time is negative")
	}
	return nil
}

// transferParams are vLLM's kv_transfer_params.
type transferParams struct {
	DoRemotePrefill bool   `json:"do_remote_prefill"`
	DoRemoteDecode  bool   `json:"do_remote_decode"`
	RemoteEngineID  string `json:"remote_engine_id"`
	RemoteRequestID string `json:"remote_request_id"`
	RemoteHost      string `json:"remote_host"`
}

// receive waits for the part of the prompt that another replica has computed, and prepares q.
func (s *Server) receive(ctx context.Context, g *generation, b *body, q *seq) error {
	t := s.cfg.Transfer
	if t == nil {
		return nil
	}
	var h *handle
	switch p := b.KVTransferParams; {
	case t.Protocol == "stored":
		q.external = t.Hub.leading(q.keys) * s.cfg.BlockSize
		q.store = true
		return s.carry(ctx, g, q.external)
	case t.Protocol == "nixl" && p != nil && p.DoRemotePrefill:
		if p.RemoteHost == "" {
			go func() { _ = s.Restart() }() // it waits for this handler's connection if the server is being closed
			<-ctx.Done()
			panic(http.ErrAbortHandler)
		}
		if !t.Hub.alive(p.RemoteEngineID) {
			return &requestError{status: http.StatusInternalServerError, msg: "KV load failed: there is no such engine"}
		}
		if h = t.Hub.fetch(p.RemoteEngineID + "/" + p.RemoteRequestID); h == nil {
			q.external, q.reports, q.wrong = q.prompt-1, true, true
			q.engine.wrongBlocks()
			return s.carry(ctx, g, q.external)
		}
	case t.Protocol == "nixl" && p != nil && p.DoRemoteDecode:
		q.pin = true
		return nil
	case t.Protocol == "sglang" && b.BootstrapRoom == nil:
		if t.Decodes {
			return badRequest("this engine does not prefill: bootstrap_room is missing")
		}
		return nil
	case t.Protocol == "sglang" && !t.Decodes:
		q.pin, q.room, q.want = true, *b.BootstrapRoom, 1
		return nil
	case t.Protocol == "sglang":
		m := t.Hub.meet(*b.BootstrapRoom)
		select {
		case <-m.ready:
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		case <-g.ended:
			panic(http.ErrAbortHandler)
		}
		if h = m.h; h.gone() {
			<-ctx.Done() // it waits for ever
			panic(http.ErrAbortHandler)
		}
		t.Hub.leave(*b.BootstrapRoom)
	default:
		return nil
	}
	n := 0
	for n < len(q.keys) && n < len(h.seq.keys) && q.keys[n] == h.seq.keys[n] {
		n++
	}
	q.external = n * s.cfg.BlockSize
	if n == min(len(q.keys), h.seq.prompt/s.cfg.BlockSize) && h.seq.prompt == q.prompt {
		q.external = q.prompt - 1 // the last block, though it is not full
	}
	_, q.reported, _ = h.seq.engine.progress(h.seq)
	q.reports = true
	defer h.release()
	return s.carry(ctx, g, q.external)
}

// carry takes the time to hand over n tokens.
func (s *Server) carry(ctx context.Context, g *generation, n int) error {
	per := s.cfg.Transfer.Token
	if per == 0 {
		per = 2 * time.Microsecond
	}
	if d := time.Duration(float64(per) * float64(n) * s.cfg.TimeScale); d > 0 && !g.sleep(ctx, d) {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// hand gives the blocks of q, which has ended, to the Hub. It returns the parameters for the replica that
// fetches them, nil if there are none.
func (s *Server) hand(g *generation, q *seq) []byte {
	t := s.cfg.Transfer
	switch {
	case t == nil:
		return nil
	case q.store:
		t.Hub.store(q.keys[:q.prompt/s.cfg.BlockSize])
		return nil
	case !q.pin:
		return nil
	}
	h := &handle{g: g, seq: q}
	keep := t.PinnedFor
	if keep == 0 {
		keep = 30 * time.Second
	}
	if t.Protocol == "sglang" {
		t.Hub.arrive(q.room, h)
		time.AfterFunc(keep, func() {
			if t.Hub.leave(q.room) {
				h.release()
			}
		})
		return nil
	}
	if q.tokens[len(q.tokens)-1] == tokEnd { // a request that was not cut short hands nothing over
		h.release()
		return nil
	}
	engine, id := t.Hub.pin(h)
	time.AfterFunc(keep, func() {
		if t.Hub.fetch(engine+"/"+id) != nil {
			h.release()
			h.seq.engine.expired()
		}
	})
	host, port, _ := net.SplitHostPort(s.addr)
	n, _ := strconv.Atoi(port)
	ids := make([]int, 0, len(q.blocks))
	for _, b := range q.blocks {
		ids = append(ids, int(b))
	}
	out, err := json.Marshal(map[string]any{
		"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [][]int{ids}, "remote_engine_id": engine,
		"remote_request_id": id, "remote_host": host, "remote_port": n, "tp_size": 1,
	})
	if err != nil {
		return nil
	}
	return out
}

// gone reports whether the process with the blocks has ended.
func (h *handle) gone() bool {
	select {
	case <-h.g.ended:
		return true
	default:
		return false
	}
}

// release gives the blocks back.
func (h *handle) release() {
	e := h.seq.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sched.pool.release(h.seq.blocks)
	h.seq.blocks = nil
}

// wrongBlocks counts a request with blocks that may be another prompt's.
func (e *engine) wrongBlocks() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.m.wrong++
}

// expired counts blocks that nobody fetched.
func (e *engine) expired() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.m.expired++
}

// pin keeps blocks and returns the IDs of the engine and of the request.
func (h *Hub) pin(hd *handle) (engine, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pinned == nil {
		h.pinned, h.engines = make(map[string]*handle), make(map[string]*generation)
	}
	engine = fmt.Sprintf("%p", hd.g)
	h.engines[engine] = hd.g
	h.ids++
	id = strconv.FormatUint(h.ids, 16)
	h.pinned[engine+"/"+id] = hd
	h.pending++
	return engine, id
}

// alive reports whether the process with an ID runs.
func (h *Hub) alive(engine string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.engines[engine]
	if g == nil {
		return false
	}
	select {
	case <-g.ended:
		delete(h.engines, engine)
		return false
	default:
		return true
	}
}

// fetch takes the blocks with this key, nil if they are not there.
func (h *Hub) fetch(key string) *handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	hd := h.pinned[key]
	if hd != nil {
		delete(h.pinned, key)
		h.pending--
	}
	return hd
}

func (h *Hub) meet(room int64) *meeting {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.rooms[room]
	if m == nil {
		m = &meeting{ready: make(chan struct{})}
		if h.rooms == nil {
			h.rooms = make(map[int64]*meeting)
		}
		h.rooms[room] = m
	}
	return m
}

func (h *Hub) arrive(room int64, hd *handle) {
	m := h.meet(room)
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.h == nil {
		m.h = hd
		h.pending++
		close(m.ready)
	}
}

// leave ends a meeting and reports whether there was one.
func (h *Hub) leave(room int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.rooms[room]
	if m != nil && m.h != nil {
		h.pending--
	}
	delete(h.rooms, room)
	return m != nil
}

func (h *Hub) store(keys []blockKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stored == nil || len(h.stored)+len(keys) > maxStored {
		h.stored = make(map[blockKey]struct{})
	}
	for _, k := range keys {
		h.stored[k] = struct{}{}
	}
}

// leading returns how many of the first keys are stored.
func (h *Hub) leading(keys []blockKey) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, k := range keys {
		if _, ok := h.stored[k]; !ok {
			return i
		}
	}
	return len(keys)
}
