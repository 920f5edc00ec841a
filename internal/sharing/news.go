package sharing

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/warmroute/router/internal/peering"
)

// Kind is the kind of a piece of news.
type Kind = peering.Kind

// maxNews bounds the body of a piece of news, in bytes.
const maxNews = 1024

// news is one piece that came from another gateway.
type news struct {
	kind Kind
	id   string
	body []byte
	age  time.Duration
}

// Pass passes on a piece of news about a target.
func (n *Node) Pass(kind Kind, id string, body []byte) {
	if len(body) <= maxNews {
		n.add(op{kind: factNews, id: id, news: append([]byte{byte(kind)}, body...)})
	}
}

// readers are called about news.
type readers struct {
	mu  sync.Mutex
	all []*reading
}

type reading struct {
	kind Kind
	f    func(id string, body []byte, age time.Duration) bool
}

// OnNews has f called about each piece of news of a kind that comes from another gateway, without a lock, until it
// returns false.
func (n *Node) OnNews(kind Kind, f func(id string, body []byte, age time.Duration) bool) {
	n.readers.mu.Lock()
	defer n.readers.mu.Unlock()
	n.readers.all = append(n.readers.all, &reading{kind, f})
}

func (r *readers) call(all []news) {
	for _, x := range all {
		r.mu.Lock()
		fs := slices.Clone(r.all)
		r.mu.Unlock()
		for _, f := range fs {
			if f.kind == x.kind && !f.f(x.id, x.body, x.age) {
				r.mu.Lock()
				r.all = slices.DeleteFunc(r.all, func(g *reading) bool { return g == f })
				r.mu.Unlock()
			}
		}
	}
}

// sealed encrypts b for the gateways of the fleet.
func (k *Key) sealed(b []byte) []byte {
	nonce := make([]byte, k.seal.NonceSize(), k.seal.NonceSize()+len(b)+k.seal.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return k.seal.Seal(nonce, nonce, b, nil)
}

func (k *Key) open(b []byte) ([]byte, bool) {
	n := k.seal.NonceSize()
	if len(b) < n {
		return nil, false
	}
	out, err := k.seal.Open(nil, b[:n], b[n:], nil)
	return out, err == nil && len(out) > 0
}

// heardNews reads a piece of news, under mu.
func (n *Node) heardNews(f *fact, at stamp) {
	b, ok := n.cfg.Key.open(f.news)
	if !ok {
		n.stats.bad++
		return
	}
	k := n.targets.ofTag(f.tag, at)
	if k == noNumber {
		return
	}
	if id := n.targets.idOf(k); id != "" {
		old := stampOf(n.now()) - min(at, stampOf(n.now())) + stamp(min(f.age, uint64(at)))
		n.unheard = append(n.unheard, news{Kind(b[0]), id, b[1:], time.Duration(old) * stampUnit})
	}
}
