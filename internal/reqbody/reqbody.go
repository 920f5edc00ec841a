// Package reqbody reads the bodies of HTTP requests into memory, within bounds that hold
// whatever a client announces: memory is charged as bytes come, a body that comes too
// slowly is given up, and one client's address may have a share of all.
package reqbody

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/membudget"
)

// The errors of Read, in addition to those of reading. A time-out is a net.Error. A Memory without bytes is a
// *membudget.Error, which is ErrBusy too, or ErrTooLarge if the body can never fit.
var (
	ErrTooLarge = errors.New("the request body is too large")
	ErrBusy     = errors.New("the gateway is at its limit")
)

// Config bounds the bodies of a Pool. Each zero field has a default.
type Config struct {
	// MaxBody bounds one body, in bytes. 0 means 32 MiB.
	MaxBody int64
	// MaxBodies bounds the bytes of all bodies at once. 0 means 1 GiB.
	MaxBodies int64
	// Memory has the bytes of all bodies in addition; nil: MaxBodies alone bounds them.
	Memory *membudget.Account
	// Timeout and Rate are the least speed of a body: each Timeout, Rate bytes a second
	// must have come, or the rest of it. 0 means a minute and 8,192 bytes a second.
	Timeout time.Duration
	Rate    int64
	// MaxClient bounds the bytes of all bodies of one client's address. 0: no bound.
	MaxClient int64
	// Decode writes a body to w without the codings that values, those of the header
	// Content-Encoding, name. nil: bodies stay as they are.
	Decode func(ctx context.Context, w io.Writer, values []string, body []byte) error
}

// WithDefaults returns c with the default in place of each field that is zero and has
// one.
func (c Config) WithDefaults() Config {
	c.MaxBody = cmp.Or(c.MaxBody, 32<<20)
	c.MaxBodies = cmp.Or(c.MaxBodies, 1<<30)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.Rate = cmp.Or(c.Rate, 8192)
	return c
}

// Pool lends buffers for bodies and bounds their sum. It is safe for concurrent use.
type Pool struct {
	cfg     Config
	step    int64                  // bytes that must come each Timeout
	free    sync.Pool              // of *Body without data
	buffers [keptClasses]sync.Pool // of *[]byte, by the class of their capacity
	used    atomic.Int64
	clients *Shares
}

// New returns a Pool. The error is a *router.ConfigError for each field that is negative,
// joined.
func New(c Config) (*Pool, error) {
	c = c.WithDefaults()
	bad := configerr.List{Package: "reqbody"}
	const positive = "at least 1, or 0 for the default"
	bad.Check(c.MaxBody > 0, "MaxBody", c.MaxBody, positive)
	bad.Check(c.MaxBodies > 0, "MaxBodies", c.MaxBodies, positive)
	bad.Check(c.Timeout > 0, "Timeout", c.Timeout, "positive, or 0 for the default")
	bad.Check(c.Rate > 0, "Rate", c.Rate, positive)
	bad.Check(c.MaxClient >= 0, "MaxClient", c.MaxClient, "at least 0")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: c, clients: NewShares(c.MaxClient)}
	// A float64, as the product need not fit 64 bits.
	p.step = int64(min(float64(c.Rate)*c.Timeout.Seconds(), float64(c.MaxBody)))
	return p, nil
}

// Reserve takes n bytes from the bound of all bodies, MaxBodies, unless it has no more; Give
// brings them back. Memory is not asked: it has other accounts for the copies of bodies.
func (p *Pool) Reserve(n int64) bool {
	if p.used.Add(n) > p.cfg.MaxBodies {
		p.used.Add(-n)
		return false
	}
	return true
}

// Give brings back n bytes that Reserve took.
func (p *Pool) Give(n int64) { p.used.Add(-n) }

// Memory returns the account of the bodies; nil: there is none.
func (p *Pool) Memory() *membudget.Account { return p.cfg.Memory }

// Used returns the bytes that are taken at the moment.
func (p *Pool) Used() int64 { return p.used.Load() }

const (
	// firstBuffer is charged before any byte has come.
	firstBuffer = 8 << 10
	// keepBuffer is the capacity in bytes above which a buffer is left to the garbage
	// collector, so that a few huge bodies do not stay resident.
	keepBuffer = 1 << 20
	// keptClasses are the classes of the capacities of kept buffers: class c has those from
	// 1<<c on, up to twice that. The last is that of keepBuffer.
	keptClasses = 21
)

// buffer returns an empty buffer for n bytes. Its capacity is in the class of n, and so less than twice n: a small
// body does not pin the memory of a large one.
func (p *Pool) buffer(n int64) []byte {
	if c := bits.Len64(uint64(n)) - 1; c < keptClasses {
		if b, _ := p.buffers[c].Get().(*[]byte); b != nil && int64(cap(*b)) >= n {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, n)
}

// keep keeps a buffer for another body.
func (p *Pool) keep(b []byte) {
	if c := bits.Len(uint(cap(b))) - 1; c >= 0 && cap(b) <= keepBuffer {
		b = b[:0]
		p.buffers[c].Put(&b)
	}
}

// Body is a request's body in memory. Its buffer goes back to the Pool when it is
// released as often as it was read or retained.
type Body struct {
	data   []byte
	refs   atomic.Int32
	pool   *Pool
	held   int64  // bytes taken from the Pool
	client string // has taken them too
}

// Bytes returns the body. It must not be used after the Release of the last reference.
func (b *Body) Bytes() []byte { return b.data }

// Pool returns the Pool that b is of.
func (b *Body) Pool() *Pool { return b.pool }

// Read reads r's body, and decodes it if it has a Content-Encoding; w answers r. The
// caller releases the Body. Read leaves a read deadline on the connection, which the
// caller takes back. An error of Decode is returned unchanged.
func (p *Pool) Read(w http.ResponseWriter, r *http.Request) (*Body, error) {
	b := p.body()
	if r.Body == nil || r.Body == http.NoBody {
		return b, nil
	}
	if r.ContentLength > p.cfg.MaxBody {
		b.Release()
		return nil, ErrTooLarge
	}
	b.client = ClientOf(r)
	if err := b.fill(http.NewResponseController(w), r); err != nil {
		b.Release()
		return nil, err
	}
	if values := r.Header["Content-Encoding"]; p.cfg.Decode != nil && len(values) > 0 && len(b.data) > 0 {
		return b.decoded(r.Context(), values)
	}
	return b, nil
}

// decoded returns b without the codings of values, in another Body, and releases b.
func (b *Body) decoded(ctx context.Context, values []string) (*Body, error) {
	defer b.Release()
	out := b.pool.body()
	out.client = b.client
	if err := b.pool.cfg.Decode(ctx, (*writer)(out), values, b.data); err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// writer appends to a Body within the bounds.
type writer Body

// Write is an io.Writer's.
func (w *writer) Write(p []byte) (int, error) {
	b := (*Body)(w)
	need := int64(len(b.data)) + int64(len(p))
	if need > b.pool.cfg.MaxBody {
		return 0, ErrTooLarge
	}
	if have := int64(cap(b.data)); need > have {
		if err := b.grow(max(need, min(2*have, b.pool.cfg.MaxBody))); err != nil {
			return 0, err
		}
	}
	b.data = append(b.data, p...)
	return len(p), nil
}

func (p *Pool) body() *Body {
	b, _ := p.free.Get().(*Body)
	if b == nil {
		b = &Body{pool: p}
	}
	b.refs.Store(1)
	return b
}

// fill reads the body. The buffer grows to twice its size when it is full, and never
// beyond the length that r announces.
func (b *Body) fill(ctl *http.ResponseController, r *http.Request) error {
	most := b.pool.cfg.MaxBody
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	size, due := min(firstBuffer, most), int64(0)
	for {
		if err := b.grow(size + 1); err != nil { // the one more lets the last Read see the end
			return err
		}
		if int64(len(b.data)) >= due {
			due = int64(len(b.data)) + b.pool.step
			// A writer that has no connection behind it has no deadline either.
			_ = ctl.SetReadDeadline(time.Now().Add(b.pool.cfg.Timeout))
		}
		n, err := r.Body.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if int64(len(b.data)) > b.pool.cfg.MaxBody {
			return ErrTooLarge
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the request body: %w", err)
		}
		if int64(len(b.data)) > size {
			size = min(2*size, most)
		}
	}
}

// grow makes the capacity at least n, within the bounds.
func (b *Body) grow(n int64) error {
	if int64(cap(b.data)) >= n {
		return nil
	}
	if err := b.take(n); err != nil {
		return err
	}
	data := b.pool.buffer(n)
	if err := b.take(int64(cap(data))); err != nil { // a kept one has more than n
		data = make([]byte, 0, n)
	}
	was := b.data
	b.data = append(data, was...)
	b.pool.keep(was)
	return nil
}

// take charges n bytes in all.
func (b *Body) take(n int64) error {
	add := n - b.held
	if add <= 0 {
		return nil
	}
	p := b.pool
	if !p.clients.Take(b.client, add) {
		return ErrBusy
	}
	if !p.Reserve(add) {
		p.clients.Give(b.client, add)
		return ErrBusy
	}
	if err := p.cfg.Memory.Reserve(add); err != nil {
		p.Give(add)
		p.clients.Give(b.client, add)
		if n > p.cfg.Memory.Limit() {
			return errors.Join(ErrTooLarge, &membudget.Error{
				Account: p.cfg.Memory.Name(), Bytes: n, Limit: p.cfg.Memory.Limit(), Never: true,
			})
		}
		return errors.Join(ErrBusy, err)
	}
	b.held = n
	return nil
}

// Retain adds a reference.
func (b *Body) Retain() { b.refs.Add(1) }

// Release gives up a reference.
func (b *Body) Release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	b.pool.Give(b.held)
	b.pool.cfg.Memory.Release(b.held)
	b.pool.clients.Give(b.client, b.held)
	b.pool.keep(b.data)
	b.held, b.client, b.data = 0, "", nil
	b.pool.free.Put(b)
}
