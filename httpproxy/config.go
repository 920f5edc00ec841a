package httpproxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/membudget"
	"github.com/warmroute/router/prompt"
)

// The defaults of Config.
const (
	DefaultMaxBody   = 32 << 20
	DefaultMaxBodies = 1 << 30
)

// Config configures a Proxy. The zero Config, with a Router, has the defaults.
type Config struct {
	// Router chooses the targets. It is needed, unless Choose is set.
	Router *router.Router
	// Choose returns the Router of a request, for a host with several pools or with a part
	// of the fleet for some requests (router.Router.Among); nil: Router.
	Choose func(*http.Request) *router.Router
	// Transport sends to the targets; nil means one of NewTransport.
	Transport http.RoundTripper
	// Parser reads the prompts.
	Parser prompt.Parser
	// MaxBody is the greatest body of a request, in bytes, and MaxBodies bounds the bodies
	// of all requests that wait or are being sent, as they come. A longer one is ErrTooLarge, more of them
	// are ErrBusy. 0 means DefaultMaxBody and DefaultMaxBodies.
	MaxBody, MaxBodies int64
	// Memory bounds the bodies, the prompts and the replies, by its accounts of these names, in place of MaxBodies. A
	// request that does not fit is ErrBusy, and a *membudget.Error. nil: MaxBodies bounds the bodies, and nothing else is
	// counted.
	Memory *membudget.Budget
	// Decode returns a body without its Content-Encodings, of which it gets the values:
	// contentcoding.Decoder.Decode is one. An error is answered with 400, or with its
	// StatusCode() if it has that method. nil: an encoded body is passed on as it is, and
	// nothing is known of its prompt.
	Decode func(ctx context.Context, values []string, body []byte) ([]byte, error)
	// HeaderTimeout bounds the time until a target begins to reply, with the prefill. After
	// it the attempt has failed, which speaks against the target. The request is not sent
	// again, as the target may be computing it. 0: no bound.
	HeaderTimeout time.Duration
	// Error is called with each error that ServeHTTP answers; may be nil.
	Error func(*http.Request, error)
}

// WithDefaults returns c with the default in place of each field that is zero and has one.
func (c Config) WithDefaults() Config {
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxBodies = cmp.Or(c.MaxBodies, DefaultMaxBodies)
	if c.Choose == nil {
		r := c.Router
		c.Choose = func(*http.Request) *router.Router { return r }
	}
	if c.Transport == nil {
		c.Transport = NewTransport()
	}
	if c.Error == nil {
		c.Error = func(*http.Request, error) {}
	}
	return c
}

func (c *Config) check() error {
	bad := configerr.List{Package: "httpproxy"}
	bad.Check(c.Router != nil || c.Choose != nil, "Router", nil, "a Router, unless Choose is set")
	bad.Check(c.MaxBody >= 0, "MaxBody", c.MaxBody, "0 or more")
	bad.Check(c.MaxBodies >= 0, "MaxBodies", c.MaxBodies, "0 or more")
	bad.Check(c.HeaderTimeout >= 0, "HeaderTimeout", c.HeaderTimeout, "0 or more")
	return bad.Err()
}

// NewTransport returns a transport for many long streams to few targets. It uses no proxy of the environment, which is
// for the way out, and asks for no compression, which would hold tokens back.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1024,
		MaxResponseHeaderBytes: 256 << 10,
		IdleConnTimeout:        4 * time.Second, // less than the 5 s after which uvicorn closes
	}
}

// The errors of a request that was not sent.
var (
	ErrTooLarge = errors.New("httpproxy: the request's body is too large")
	ErrBusy     = errors.New("httpproxy: too many bytes of request bodies at once")
)

// baseOf returns the base URL of a target.
func baseOf(t router.Target) (*url.URL, error) {
	if u, ok := t.Ref.(*url.URL); ok {
		return u, nil
	}
	u, err := url.Parse(t.ID)
	if err != nil || u.Host == "" {
		return nil, errors.New("httpproxy: a target has no *url.URL as its Ref, and its ID is no URL")
	}
	return u, nil
}
