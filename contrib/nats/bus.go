package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	nats "github.com/nats-io/nats.go"

	"github.com/warmroute/router"
	"github.com/warmroute/router/share"
)

// The defaults of Config.
const (
	DefaultPrefix     = "warmroute"
	DefaultMaxPending = 1 << 20
	DefaultBuffer     = 1 << 20
)

// Config configures a Bus. URL or Server is needed.
type Config struct {
	// URL are the addresses of servers, with commas between them: "nats://10.0.0.1:4222,nats://10.0.0.2:4222".
	URL string
	// Server is a server in this process; URL is not used then.
	Server *Server
	// Name is the name of the connection, for the server's pages.
	Name string
	// Prefix is the beginning of all subjects, which credentials can be limited to. "" means DefaultPrefix.
	Prefix string
	// TLS is for connections to a URL; nil: none, but for a URL that begins with tls://.
	TLS *tls.Config
	// User and Password, Token, or the file of Credentials (a JWT and its key) or of an NKey's seed are shown to the
	// server; all may be "".
	User, Password, Token, Credentials, NKey string
	// MaxPending bounds the bytes of frames that wait for one subscriber, and Buffer those that wait for the network.
	// More are dropped. 0 means DefaultMaxPending and DefaultBuffer.
	MaxPending, Buffer int
}

// WithDefaults returns c with the default in place of each field that is zero and has one.
func (c Config) WithDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.MaxPending = cmp.Or(c.MaxPending, DefaultMaxPending)
	c.Buffer = cmp.Or(c.Buffer, DefaultBuffer)
	return c
}

func (c *Config) check() error {
	var errs []error
	bad := func(field string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("nats: %w", &router.ConfigError{Field: field, Value: value, Allowed: allowed}))
	}
	if c.URL == "" && c.Server == nil {
		bad("URL", c.URL, "an address, unless there is a Server")
	}
	if strings.ContainsAny(c.Prefix, " \t\r\n*>") || strings.HasPrefix(c.Prefix, ".") || strings.HasSuffix(c.Prefix, ".") {
		bad("Prefix", c.Prefix, "a subject without wildcards")
	}
	if c.MaxPending < 0 {
		bad("MaxPending", c.MaxPending, "0 or more")
	}
	if c.Buffer < 0 {
		bad("Buffer", c.Buffer, "0 or more")
	}
	return errors.Join(errs...)
}

// Bus is a share.Bus. Close it at the end.
type Bus struct {
	cfg    Config
	conn   *nats.Conn
	closed chan struct{}

	sent, received, dropped atomic.Uint64

	mu    sync.Mutex
	since time.Time
	err   error
	subs  map[*nats.Subscription]struct{}
}

var _ share.Bus = (*Bus)(nil)

// New returns a Bus, which connects in the background, also if no server is there yet. The error joins a
// *router.ConfigError for each field with a bad value, or is that of the credentials.
func New(cfg Config) (*Bus, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg.WithDefaults(), closed: make(chan struct{}), subs: map[*nats.Subscription]struct{}{}}
	changed := func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.since, b.err = time.Now(), err
	}
	opts := []nats.Option{
		nats.Name(b.cfg.Name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(200 * time.Millisecond), nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		nats.ReconnectBufSize(-1), // frames that waited through an outage are late
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(time.Second), // of a write to a server that stands still
		nats.ConnectHandler(func(*nats.Conn) { changed(nil) }),
		nats.ReconnectHandler(func(*nats.Conn) { changed(nil) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { changed(cmp.Or(err, nats.ErrDisconnected)) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.fail(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.fail(err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
	if cfg.TLS != nil {
		opts = append(opts, nats.Secure(cfg.TLS))
	}
	if cfg.User != "" {
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.Token != "" {
		opts = append(opts, nats.Token(cfg.Token))
	}
	if cfg.Credentials != "" {
		opts = append(opts, nats.UserCredentials(cfg.Credentials))
	}
	if cfg.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(cfg.NKey)
		if err != nil {
			return nil, fmt.Errorf("nats: NKey: %w", err)
		}
		opts = append(opts, o)
	}
	url := cfg.URL
	if cfg.Server != nil {
		opts = append(opts, nats.InProcessServer(cfg.Server.server))
		url = ""
	}
	var err error
	if b.conn, err = nats.Connect(url, opts...); err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	if b.mu.Lock(); b.since.IsZero() && b.conn.IsConnected() { // its hook is called a little later
		b.since = time.Now()
	}
	b.mu.Unlock()
	return b, nil
}

func (b *Bus) fail(err error) {
	if err == nil || errors.Is(err, nats.ErrSlowConsumer) { // they are counted as dropped
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *Bus) subject(s string) string { return b.cfg.Prefix + "." + s }

// Publish is share.Bus's.
func (b *Bus) Publish(subject string, data []byte) error {
	switch {
	case len(data) > share.MaxFrame:
		b.dropped.Add(1)
		return fmt.Errorf("%w: it has %d bytes", share.ErrDropped, len(data))
	case !b.conn.IsConnected():
		b.dropped.Add(1)
		return fmt.Errorf("%w: not connected", share.ErrDropped)
	}
	if n, err := b.conn.Buffered(); err == nil && n > b.cfg.Buffer {
		b.dropped.Add(1)
		return fmt.Errorf("%w: %d bytes wait for the network", share.ErrDropped, n)
	}
	if err := b.conn.Publish(b.subject(subject), data); err != nil {
		b.dropped.Add(1)
		return fmt.Errorf("%w: %w", share.ErrDropped, err)
	}
	b.sent.Add(1)
	return nil
}

// Subscribe is share.Bus's.
func (b *Bus) Subscribe(subject string, receive func(data []byte)) (stop func(), err error) {
	return b.subscribe(subject, "", func(m *nats.Msg) {
		b.received.Add(1)
		receive(m.Data)
	})
}

// Serve is share.Bus's: of several that serve a subject one gets each request.
func (b *Bus) Serve(subject string, answer func(request []byte) []byte) (stop func(), err error) {
	return b.subscribe(subject, "serve", func(m *nats.Msg) {
		if reply := answer(m.Data); reply != nil && len(reply) <= share.MaxFrame {
			_ = m.Respond(reply) // who asks again gets it again
		}
	})
}

func (b *Bus) subscribe(subject, group string, f func(*nats.Msg)) (stop func(), err error) {
	s, err := b.conn.QueueSubscribe(b.subject(subject), group, f)
	if err == nil {
		err = s.SetPendingLimits(-1, b.cfg.MaxPending)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	b.mu.Lock()
	b.subs[s] = struct{}{}
	b.mu.Unlock()
	return sync.OnceFunc(func() {
		b.mu.Lock()
		delete(b.subs, s)
		b.dropped.Add(lost(s))
		b.mu.Unlock()
		_ = s.Unsubscribe() // the connection may be closed
	}), nil
}

// lost returns the number of frames that s was too slow for.
func lost(s *nats.Subscription) uint64 {
	n, err := s.Dropped()
	if err != nil || n < 0 { // the connection is closed
		return 0
	}
	return uint64(n)
}

// Request is share.Bus's. A request has no reply if its server goes in that moment: without a deadline of ctx it is
// given up after 10 s.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if len(data) > share.MaxFrame {
		return nil, fmt.Errorf("nats: a request of %d bytes", len(data))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m, err := b.conn.RequestWithContext(ctx, b.subject(subject), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("nats: %s: %w", subject, share.ErrNoPeer)
	case err != nil:
		return nil, fmt.Errorf("nats: %s: %w", subject, err)
	}
	return m.Data, nil
}

// State is share.Bus's.
func (b *Bus) State() share.BusState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := share.BusState{Connected: b.conn.IsConnected(), Since: b.since, Err: b.err, Sent: b.sent.Load(),
		Received: b.received.Load(), Dropped: b.dropped.Load()}
	for sub := range b.subs {
		s.Dropped += lost(sub)
	}
	return s
}

// Close ends the connection and waits until its goroutines have ended.
func (b *Bus) Close() {
	b.conn.Close()
	<-b.closed
}
