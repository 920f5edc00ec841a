package reqbody

import (
	"net/http"
	"net/netip"
	"sync"
)

// Shares bounds how much of something each client has at once. A nil *Shares bounds
// nothing. It is safe for concurrent use and remembers those that have something.
type Shares struct {
	max  int64
	mu   sync.Mutex
	used map[string]int64
}

// NewShares returns Shares of at most max each, nil if max is 0.
func NewShares(max int64) *Shares {
	if max <= 0 {
		return nil
	}
	return &Shares{max: max, used: make(map[string]int64)}
}

// Take adds n to the part that client has, unless that would be more than it may have.
func (s *Shares) Take(client string, n int64) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[client]+n > s.max {
		return false
	}
	s.used[client] += n
	return true
}

// Give takes n from the part that client has.
func (s *Shares) Give(client string, n int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.used[client] - n; left > 0 {
		s.used[client] = left
	} else {
		delete(s.used, client)
	}
}

// ClientOf returns the address that r came from, without its port; of IPv6 it is the
// /64 network, which one client has as a whole.
func ClientOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := at.Addr().Unmap()
	if addr.Is6() {
		if net, err := addr.Prefix(64); err == nil {
			return net.Masked().String()
		}
	}
	return addr.String()
}
