package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Dialer connects to the addresses that a Policy allows. It is safe for
// concurrent use; its DialContext fits http.Transport. Make one with
// [Policy.Dialer].
type Dialer struct {
	policy Policy
	free   net.Dialer // for allowed hosts
	held   net.Dialer // checks each address that it dials
}

// dialTimeout bounds one connection attempt if ctx does not.
const dialTimeout = 10 * time.Second

// Dialer returns a dialer that checks every connection by the policy, which must
// not be changed afterwards.
func (p Policy) Dialer() *Dialer {
	d := &Dialer{policy: p}
	d.free.Timeout, d.held.Timeout = dialTimeout, dialTimeout
	d.held.Control = d.Control
	return d
}

// DialContext connects to address on a network "tcp", "tcp4" or "tcp6". Of a
// name that has several addresses those that are denied are passed over; if
// none connects, a denied one is a [*DeniedError] that names the host.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, fmt.Errorf("egress: %s: the network %q is not tcp", address, network)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	if d.policy.allowed(host) {
		return d.free.DialContext(ctx, network, address)
	}
	if err := d.policy.checkHost(address, host); err != nil {
		return nil, err
	}
	c, err := d.held.DialContext(ctx, network, address)
	var denied *DeniedError
	if errors.As(err, &denied) {
		e := *denied
		e.Target = address
		return nil, &e
	}
	return c, err
}

// Control is a net.Dialer's Control: it refuses the address about to be dialled
// if the policy denies it. It knows no names, so of AllowHosts only addresses
// count.
func (d *Dialer) Control(network, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("egress: %s is not an address: %w", address, err)
	}
	return d.policy.CheckAddr(ap.Addr())
}
