// Package ports chooses ports for servers that tests and benchmarks start. The ports that a
// system chooses for ":0" are also those of outgoing connections, which keep them for a minute
// after their end: the port next to one, or one that a server left for a moment, may be taken.
package ports

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports from low to below high are in no system's default range of outgoing connections
// (Linux: 32768 to 60999, others: 49152 to 65535).
const low, high = 10000, 32768

// Any returns a port that outgoing connections do not take. It may be in use.
func Any() int { return low + rand.IntN(high-low) }

// Listen listens on the TCP address; for port 0 on one of Any that is free.
func Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "0" {
		return net.Listen("tcp", address)
	}
	for range 20 {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(Any()))); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", address)
}

// Free returns a loopback address that nobody listened on a moment ago.
func Free() (string, error) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
