package tokencache

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/trie"
)

// The bounds of presumptions.
const (
	maxPresumed      = 4096
	maxPresumedBytes = 32 << 20
)

// lag is how long the events of a request that has ended may still be on their way.
const lag = 200 * time.Millisecond

// presumed has the prompts that were sent recently: the engines' events cannot
// have reported them yet.
type presumed struct {
	keep time.Duration
	trie *trie.Trie // of the tokens' bytes
	n    atomic.Int64

	mu    sync.Mutex
	queue []*Presumption // the oldest first; those that were dropped stay until then
	ended []ended        // those with an ended request, in that order
	bytes int            // of those that are in the trie
}

type ended struct {
	*Presumption
	until time.Time
}

// Presumption is one prompt that was sent to one target.
type Presumption struct {
	scope, text, id string
	until           time.Time
	dropped         bool
}

func newPresumed(keep time.Duration) (*presumed, error) {
	t, err := trie.New(trie.Config{MaxBytes: maxPresumedBytes})
	return &presumed{keep: keep, trie: t}, err
}

// add presumes p's tokens at the target; nil if it does not.
func (q *presumed) add(p *router.Prompt, id string, now time.Time) *Presumption {
	size := textcache.TokenSize * len(p.Tokens)
	if q.keep < 0 || size == 0 || size > maxPresumedBytes/8 {
		return nil
	}
	// Copied, as the request may end before the presumption does.
	text := strings.Clone(textcache.TokenBytes(p.Tokens))
	e := &Presumption{scope: p.Scope(), text: text, id: id, until: now.Add(q.keep)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	for len(q.queue) >= maxPresumed || q.bytes+size > maxPresumedBytes {
		q.pop()
	}
	q.queue = append(q.queue, e)
	q.bytes += size
	q.n.Store(int64(len(q.queue)))
	q.trie.Insert(e.scope, e.text, e.id)
	return e
}

// match returns how many leading tokens of p, of any number, each of ids is
// presumed to hold; nil: none does.
func (q *presumed) match(p *router.Prompt, ids []string, now time.Time, cached []int) []int {
	if q.n.Load() == 0 {
		return nil
	}
	q.mu.Lock()
	q.expire(now)
	left := len(q.queue)
	q.mu.Unlock()
	if left == 0 {
		return nil
	}
	cached = q.trie.Match(p.Scope(), textcache.TokenBytes(p.Tokens), ids, cached)
	for i := range cached {
		cached[i] /= textcache.TokenSize
	}
	return cached
}

// end lets e go as soon as the events of its request must have come. e may be nil.
func (q *presumed) end(e *Presumption, now time.Time) {
	if e == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	if e.dropped {
		return
	}
	if len(q.ended) >= maxPresumed {
		q.takeBack(q.ended[0].Presumption)
		q.ended = q.ended[1:]
	}
	q.ended = append(q.ended, ended{e, now.Add(lag)})
}

// expire drops the expired ones, under mu.
func (q *presumed) expire(now time.Time) {
	for len(q.ended) > 0 && !now.Before(q.ended[0].until) {
		q.takeBack(q.ended[0].Presumption)
		q.ended[0] = ended{}
		q.ended = q.ended[1:]
	}
	if len(q.ended) == 0 {
		q.ended = nil
	}
	for len(q.queue) > 0 && !now.Before(q.queue[0].until) {
		q.pop()
	}
}

// pop drops the oldest, under mu.
func (q *presumed) pop() {
	e := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	if len(q.queue) == 0 {
		q.queue = nil
	}
	q.n.Store(int64(len(q.queue)))
	q.takeBack(e)
}

// takeBack ends a presumption, once, under mu.
func (q *presumed) takeBack(e *Presumption) {
	if !e.dropped {
		q.trie.Remove(e.scope, e.text, e.id)
		q.release(e)
	}
}

// release frees the memory of prompts that have left the trie, under mu.
func (q *presumed) release(e *Presumption) {
	e.dropped = true
	q.bytes -= len(e.text)
	e.text = ""
}

// drop removes the presumption of a failed request. e may be nil.
func (q *presumed) drop(e *Presumption) {
	if e == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.takeBack(e)
}

// forget drops all that is presumed of a target.
func (q *presumed) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.queue {
		if e.id == id && !e.dropped {
			q.release(e)
		}
	}
	q.trie.Forget(id)
}

// count returns how many prompts are presumed, those taken back among them.
func (q *presumed) count(now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	return len(q.queue)
}
