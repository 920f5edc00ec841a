package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A block is a range of addresses with the reason to deny it.
type block struct {
	prefix netip.Prefix
	kind   Range
}

func blocks(kind Range, s ...string) []block {
	bs := make([]block, len(s))
	for i := range s {
		bs[i] = block{netip.MustParsePrefix(s[i]), kind}
	}
	return bs
}

// The registries of special addresses are IANA's. The metadata services that are
// not on a link-local address are those of AWS and Google over IPv6, of Alibaba
// and Oracle, and Azure's wire server; they come before the private ranges that
// they are in. 0.0.0.0 and [::] are the machine itself to a client.
var denied = slices.Concat(
	blocks(LinkLocal, "169.254.0.0/16", "fe80::/10", "224.0.0.0/24",
		"fd00:ec2::/32", "fd20:ce::/32", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32"),
	blocks(Loopback, "127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"),
	blocks(Private, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10"),
)

var (
	multicast  = netip.MustParsePrefix("ff00::/8")        // link-local by its scope, RFC 4291, 2.7
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291, 2.5.5.1
)

// denies returns the range for which p denies a, and the block of it that contains
// a, or an IPv4 address in it; or "".
func (p Policy) denies(a netip.Addr) (Range, netip.Prefix) {
	a = a.WithZone("").Unmap()
	for _, v4 := range embedded(a) {
		if r, block := p.denies(v4); r != "" {
			return r, block
		}
	}
	if !p.AllowLinkLocal && (a.IsLinkLocalMulticast() || a.IsInterfaceLocalMulticast()) && a.Is6() {
		return LinkLocal, multicast
	}
	for _, b := range denied {
		if p.blocks(b.kind) && b.prefix.Contains(a) {
			return b.kind, b.prefix
		}
	}
	return "", netip.Prefix{}
}

func (p Policy) blocks(r Range) bool {
	switch r {
	case LinkLocal:
		return !p.AllowLinkLocal
	case Loopback:
		return p.BlockLoopback
	}
	return p.BlockPrivate
}

// embedded returns the IPv4 addresses that a translator or a tunnel may make of a.
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	at := func(i ...int) netip.Addr { return netip.AddrFrom4([4]byte{b[i[0]], b[i[1]], b[i[2]], b[i[3]]}) }
	var as []netip.Addr
	switch {
	case compatible.Contains(a):
		if a != netip.IPv6Unspecified() && a != netip.IPv6Loopback() {
			as = append(as, at(12, 13, 14, 15))
		}
	case nat64.Contains(a), translated.Contains(a):
		as = append(as, at(12, 13, 14, 15))
	case localNAT64.Contains(a):
		// How long the operator's own prefix is, is not known; RFC 6052, 2.2 has
		// the places of the address for each length. A place with a 0 has none.
		for _, v4 := range []netip.Addr{at(6, 7, 9, 10), at(7, 9, 10, 11), at(9, 10, 11, 12), at(12, 13, 14, 15)} {
			if b := v4.As4(); b[0] != 0 {
				as = append(as, v4)
			}
		}
	case sixToFour.Contains(a):
		as = append(as, at(2, 3, 4, 5))
	case teredo.Contains(a):
		// The server, and the client, which is written inverted.
		as = append(as, at(4, 5, 6, 7), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	// ISATAP (RFC 5214) has it behind any prefix.
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		as = append(as, at(12, 13, 14, 15))
	}
	return as
}

// readings returns every address that a resolver may take host for, none if
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
