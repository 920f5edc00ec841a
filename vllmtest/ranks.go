package vllmtest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/warmroute/router/internal/ports"
)

// rankHeader chooses a data-parallel rank.
const rankHeader = "X-data-parallel-rank"

// rankOf returns the rank that a request asks for, -1 if it asks for none. As in
// vLLM a value that is no number asks for none, and a number without a rank is an
// error of the client.
func rankOf(r *http.Request, ranks int) (int, error) {
	v := strings.TrimSpace(r.Header.Get(rankHeader))
	n, err := strconv.Atoi(v)
	if errors.Is(err, strconv.ErrSyntax) {
		return -1, nil
	}
	if err != nil || n < 0 || n >= ranks {
		return 0, badRequest("data_parallel_rank %s is not in 0..%d", v, ranks-1)
	}
	return n, nil
}

// engine returns the engine of a rank. For -1 it is the one with the least of
// 4 * waiting + running, as vLLM weighs them; equals take turns.
func (g *generation) engine(rank int) *engine {
	if rank >= 0 {
		return g.engines[rank]
	}
	n := uint64(len(g.engines))
	first := (g.turn.Add(1) - 1) % n
	var best *engine
	least := 0
	for i := range n {
		e := g.engines[(first+i)%n]
		e.mu.Lock()
		load := 4*len(e.sched.waiting) + len(e.sched.running)
		e.mu.Unlock()
		if best == nil || load < least {
			best, least = e, load
		}
	}
	return best
}

// close ends the engines. It is called once.
func (g *generation) close() {
	for _, e := range g.engines {
		e.close()
	}
}

// newPublishers starts a publisher for each rank, on ports in a row, or one for
// all.
func newPublishers(cfg Events, ranks int) ([]*Publisher, error) {
	if cfg.Shared {
		p, err := NewPublisher(cfg)
		if err != nil {
			return nil, err
		}
		all := make([]*Publisher, ranks)
		for i := range all {
			all[i] = p
		}
		return all, nil
	}
	// If any port will do for the first rank, the next ones may be taken.
	for try := 0; ; try++ {
		c := cfg
		if ranks > 1 {
			c.Addr, c.ReplayAddr = chosen(cfg.Addr), chosen(cfg.ReplayAddr)
		}
		all, err := publishersInARow(c, ranks)
		if err == nil {
			return all, nil
		}
		closePublishers(all)
		fixed := !anyPort(cfg.Addr) && (cfg.NoReplay || !anyPort(cfg.ReplayAddr))
		if ranks == 1 || fixed || try == 100 {
			return nil, err
		}
	}
}

// publishersInARow returns those that could be started with an error too.
func publishersInARow(cfg Events, ranks int) ([]*Publisher, error) {
	first, err := NewPublisher(cfg)
	if err != nil {
		return nil, err
	}
	all := []*Publisher{first}
	for i := 1; i < ranks; i++ {
		c := cfg
		c.Rank += i
		if c.Addr, err = portAfter(first.pub, i); err == nil && first.router != nil {
			c.ReplayAddr, err = portAfter(first.router, i)
		}
		var p *Publisher
		if err == nil {
			p, err = NewPublisher(c)
		}
		if err != nil {
			return all, fmt.Errorf("the rank's port %d: %w", i, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// chosen returns addr with a port of our choice if any will do.
func chosen(addr string) string {
	if !anyPort(addr) {
		return addr
	}
	if addr == "" {
		addr = anyAddr
	}
	return strings.TrimSuffix(addr, "0") + strconv.Itoa(ports.Any())
}

func anyPort(addr string) bool { return addr == "" || strings.HasSuffix(addr, ":0") }

// portAfter returns the address of l with the port n further on.
func portAfter(l net.Listener, n int) (string, error) {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	base, err := strconv.Atoi(port)
	if err != nil || base+n > 65535 {
		return "", fmt.Errorf("vllmtest: Events: there is no port %s+%d", port, n)
	}
	return net.JoinHostPort(host, strconv.Itoa(base+n)), nil
}

// closePublishers closes each once.
func closePublishers(all []*Publisher) {
	for i, p := range all {
		if i == 0 || p != all[0] {
			p.Close()
		}
	}
}
