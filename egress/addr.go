package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

func prefixes(s ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(s))
	for i := range s {
		ps[i] = netip.MustParsePrefix(s[i])
	}
	return ps
}

// What netip does not know by itself. Metadata services that are not on a
// link-local address: AWS and Google over IPv6, Alibaba, Oracle, Azure's wire
// server.
var (
	metadata = prefixes("fd00:ec2::/32", "fd20:ce::/32", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32")
	self     = prefixes("0.0.0.0/8", "::/128")
	private  = prefixes("100.64.0.0/10", "fec0::/10") // beside RFC 1918 and fc00::/7

	nat64      = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	sixToFour  = netip.MustParsePrefix("2002::/16")    // RFC 3056
	compatible = netip.MustParsePrefix("::/96")        // RFC 4291, 2.5.5.1
)

// denies returns the range for which p denies a, or "".
func (p Policy) denies(a netip.Addr) Range {
	a = a.WithZone("").Unmap()
	if v4, ok := embedded(a); ok {
		if r := p.denies(v4); r != "" {
			return r
		}
	}
	switch {
	case !p.AllowLinkLocal && (a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || a.IsInterfaceLocalMulticast() || in(a, metadata)):
		return LinkLocal
	case p.BlockLoopback && (a.IsLoopback() || in(a, self)):
		return Loopback
	case p.BlockPrivate && (a.IsPrivate() || in(a, private)):
		return Private
	}
	return ""
}

func in(a netip.Addr, ps []netip.Prefix) bool {
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// embedded returns the IPv4 address that a translator or a tunnel would make of a.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), compatible.Contains(a) && a != netip.IPv6Unspecified() && a != netip.IPv6Loopback():
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:])), true
	}
	return netip.Addr{}, false
}

// readings returns every address that a resolver may take host for, none where
// it is a name. An error is a host that is neither.
func readings(host string) ([]netip.Addr, error) {
	h := strings.TrimSuffix(host, ".")
	if h == "" {
		return nil, fmt.Errorf("there is no host")
	}
	if a, err := netip.ParseAddr(h); err == nil {
		return []netip.Addr{a}, nil
	}
	for i := range len(h) {
		if h[i] >= 0x80 {
			return nil, fmt.Errorf("the host %q is not ASCII; write a name as DNS has it (xn--...)", host)
		}
		if c := h[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`:%\/@[]`, c) >= 0 {
			return nil, fmt.Errorf("%q is not a host", host)
		}
	}
	last := h[strings.LastIndexByte(h, '.')+1:]
	if _, err := number(last, true); err != nil && strings.Trim(last, "0123456789") != "" {
		return nil, nil // no top-level domain looks like a number
	}
	var as []netip.Addr
	for _, octal := range [...]bool{true, false} {
		if a, ok := parts(h, octal); ok && (len(as) == 0 || as[0] != a) {
			as = append(as, a)
		}
	}
	if len(as) == 0 {
		return nil, fmt.Errorf("%q is neither a name nor an address", host)
	}
	return as, nil
}

// parts reads an IPv4 address as inet_aton does: one to four numbers, the last
// of which fills what is left. Without octal a leading 0 means nothing, as it
// does to some other readers.
func parts(h string, octal bool) (netip.Addr, bool) {
	ps := strings.Split(h, ".")
	if len(ps) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, s := range ps {
		n, err := number(s, octal)
		if err != nil {
			return netip.Addr{}, false
		}
		bits := 8
		if i == len(ps)-1 {
			bits = 8 * (4 - i)
		}
		if n>>bits != 0 {
			return netip.Addr{}, false
		}
		v = v<<bits | n
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(v)))), true
}

func number(s string, octal bool) (uint64, error) {
	base := 10
	switch {
	case len(s) >= 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		if s, base = s[2:], 16; s == "" {
			return 0, nil // as some C libraries read a bare 0x
		}
	case octal && len(s) > 1 && s[0] == '0':
		base = 8
	}
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(s, base, 32)
}
