// Package egress decides which addresses the clients that run in the background may
// reach, so that an endpoint in a file, or a DNS answer, cannot point them at
// the cloud's metadata service.
//
// A [Policy] is asked twice: [Policy.CheckURL] when an endpoint is read, which
// finds a denied one early and without DNS, and [Policy.Dialer] at every
// connection, on the address that is really dialled, so that a name which has
// come to mean another address is denied then.
package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/warmroute/router"
)

// Policy is the addresses that may be reached. The zero Policy denies link-local addresses
// and the clouds' metadata services, and allows everything else. It may be copied and is
// safe for concurrent use while it is not changed.
type Policy struct {
	// AllowLinkLocal allows link-local addresses and metadata services.
	AllowLinkLocal bool
	// BlockLoopback denies the machine itself, which 0.0.0.0 and [::] reach too.
	BlockLoopback bool
	// BlockPrivate denies the private ranges, carrier-grade NAT (100.64.0.0/10)
	// among them.
	BlockPrivate bool
	// AllowHosts are host names and addresses that are allowed whatever their
	// range, exactly as the endpoint writes them but for case and a trailing dot;
	// no ports, no patterns. An allowed name is allowed with whatever it resolves to.
	AllowHosts []string
}

// Range is a kind of addresses that a Policy can deny.
type Range string

const (
	LinkLocal Range = "link-local"
	Loopback  Range = "loopback"
	Private   Range = "private"
)

// DeniedError reports the address that was denied, and why. It is returned by
// pointer.
type DeniedError struct {
	Target string     // the URL without its password, or the address that was dialled
	Addr   netip.Addr // its address; the zero Addr if the name alone is denied
	Range  Range
	Block  netip.Prefix // the part of Range that contains it; the zero Prefix with the zero Addr
}

// Error names the target, its range and the setting that allows it.
func (e *DeniedError) Error() string {
	is, block := "its host", ""
	if e.Addr.IsValid() {
		is = e.Addr.String()
	}
	if e.Block.IsValid() {
		block = " (" + e.Block.String() + ")"
	}
	var setting string
	switch e.Range {
	case LinkLocal:
		setting = "AllowLinkLocal (block_link_local = false)"
	case Loopback:
		setting = "BlockLoopback = false (block_loopback)"
	default:
		setting = "BlockPrivate = false (block_private)"
	}
	return fmt.Sprintf("egress: %s is denied: %s is %s%s%s; %s allows all of these, AllowHosts (allow_hosts) this host "+
		"alone",
		e.Target, is, article(e.Range), e.Range, block, setting)
}

func article(r Range) string {
	if r == LinkLocal {
		return "cloud metadata or "
	}
	return ""
}

// Validate returns a *router.ConfigError for each entry of AllowHosts that can
// match no host, joined.
func (p Policy) Validate() error {
	var errs []error
	for i, h := range p.AllowHosts {
		if n := fold(h); n == "" || strings.ContainsAny(n, " /\\@*?#[]") || hasColon(n) {
			errs = append(errs, fmt.Errorf("egress: %w", &router.ConfigError{
				Field: fmt.Sprintf("AllowHosts[%d]", i), Value: h, Allowed: "a host name or an address, without port and pattern",
			}))
		}
	}
	return errors.Join(errs...)
}

// hasColon reports whether h has one without being an IPv6 address.
func hasColon(h string) bool {
	_, err := netip.ParseAddr(h)
	return err != nil && strings.Contains(h, ":")
}

// CheckURL returns an error if the policy denies rawURL's host as it is
// written, in any spelling that some resolver takes for an address (decimal,
// hexadecimal, octal, short and IPv4-in-IPv6 forms among them), or if rawURL
// is not an absolute http, https or tcp URL with a host. A denied one is a
// [*DeniedError]. It asks no DNS: the addresses of a name are checked when they are dialled.
func (p Policy) CheckURL(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse would quote a password.
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return fmt.Errorf("egress: this is not a URL: %w", err)
	}
	name := u.Redacted()
	switch strings.ToLower(u.Scheme) {
	case "http", "https", "tcp":
	default:
		return fmt.Errorf("egress: %s: the scheme %q is none of http, https and tcp", name, u.Scheme)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("egress: %s: %q is not a port", name, port)
		}
	}
	return p.checkHost(name, u.Hostname())
}

// checkHost checks a host as it is written. target is the name of it in the error.
func (p Policy) checkHost(target, host string) error {
	if p.allowed(host) {
		return nil
	}
	addrs, err := readings(host)
	if err != nil {
		return fmt.Errorf("egress: %s: %w", target, err)
	}
	for _, a := range addrs {
		if r, block := p.denies(a); r != "" {
			return &DeniedError{Target: target, Addr: a, Range: r, Block: block}
		}
	}
	if h := fold(host); p.BlockLoopback && (h == "localhost" || strings.HasSuffix(h, ".localhost")) {
		return &DeniedError{Target: target, Range: Loopback}
	}
	return nil
}

// CheckAddr returns a [*DeniedError] if the policy denies a. It is for clients
// that resolve and dial by themselves.
func (p Policy) CheckAddr(a netip.Addr) error {
	if p.allowed(a.WithZone("").String()) {
		return nil
	}
	if r, block := p.denies(a); r != "" {
		return &DeniedError{Target: a.String(), Addr: a, Range: r, Block: block}
	}
	return nil
}

// allowed reports whether AllowHosts names host.
func (p Policy) allowed(host string) bool {
	h := fold(host)
	for _, a := range p.AllowHosts {
		if fold(a) == h {
			return true
		}
	}
	return false
}

// fold returns the one spelling of a host: of an address its usual form.
func fold(host string) string {
	h := strings.ToLower(strings.TrimSuffix(host, "."))
	h = strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Unmap().WithZone("").String()
	}
	return h
}
