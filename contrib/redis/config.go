package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/warmroute/router"
)

// The defaults of Config.
const (
	DefaultPrefix     = "warmroute"
	DefaultMaxPending = 1 << 20
	DefaultBuffer     = 1 << 20
)

// Config configures a Bus. Addrs is needed.
type Config struct {
	// Addrs has the address of the server, as host:port; of sentinels, if there is a Master; or of some of the nodes of
	// a Cluster.
	Addrs []string
	// Master is the name of the server by which sentinels know it; "": there are no sentinels.
	Master string
	// Cluster says that Addrs are of a Redis Cluster, which sends each frame to all of its nodes.
	Cluster bool
	// Username and Password are shown to the server, SentinelUsername and SentinelPassword to sentinels; "": none.
	Username, Password, SentinelUsername, SentinelPassword string
	// TLS is for all connections; nil: none.
	TLS *tls.Config
	// Prefix is the beginning of all channels, which an access list can be limited to. "" means DefaultPrefix.
	Prefix string
	// MaxPending bounds the bytes of frames that wait for one subscriber, and Buffer those that wait for the network: if
	// that many wait, more are dropped. 0 means DefaultMaxPending and DefaultBuffer.
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
		errs = append(errs, fmt.Errorf("redis: %w", &router.ConfigError{Field: field, Value: value, Allowed: allowed}))
	}
	switch {
	case len(c.Addrs) == 0 || c.Addrs[0] == "":
		bad("Addrs", c.Addrs, "one address or more")
	case len(c.Addrs) > 1 && c.Master == "" && !c.Cluster:
		bad("Addrs", c.Addrs, "one address, unless there is a Master or a Cluster")
	}
	if c.Cluster && c.Master != "" {
		bad("Cluster", c.Cluster, "false, if there is a Master")
	}
	if strings.ContainsAny(c.Prefix, " \t\r\n*?[]") {
		bad("Prefix", c.Prefix, "the beginning of a channel, without wildcards")
	}
	if c.MaxPending < 0 {
		bad("MaxPending", c.MaxPending, "0 or more")
	}
	if c.Buffer < 0 {
		bad("Buffer", c.Buffer, "0 or more")
	}
	return errors.Join(errs...)
}
