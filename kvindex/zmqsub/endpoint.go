package zmqsub

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// RankEndpoint returns the endpoint of a data-parallel rank, as engines choose
// it: the port of rank 0 and the rank.
func RankEndpoint(endpoint string, rank int) (string, error) {
	a, err := address(endpoint, true)
	if err != nil {
		return "", fmt.Errorf("zmqsub: endpoint: %w", err)
	}
	host, port, _ := net.SplitHostPort(a)
	n, _ := strconv.Atoi(port)
	if rank < 0 || rank > 65535-n {
		return "", fmt.Errorf("zmqsub: %s has no port for rank %d", endpoint, rank)
	}
	if host == "" {
		host = "*"
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n+rank)), nil
}

// address returns the host and port of an endpoint. To listen, "*" stands for
// all addresses, and port 0 is one of the system's choice.
func address(endpoint string, listen bool) (string, error) {
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return "", fmt.Errorf("%q does not begin with tcp://", redact(endpoint))
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return "", fmt.Errorf("%q is not tcp://host:port", redact(endpoint))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !listen {
		return "", fmt.Errorf("%q is not a port", port)
	}
	if host == "*" {
		host = ""
	}
	if host == "" && !listen {
		return "", fmt.Errorf("%q names no host to connect to", endpoint)
	}
	if strings.ContainsAny(host, "@/?# ") {
		return "", fmt.Errorf("%q is not tcp://host:port", redact(endpoint))
	}
	return net.JoinHostPort(host, port), nil
}

// redact keeps a password out of an error.
func redact(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil {
		return u.Redacted()
	}
	if strings.Contains(endpoint, "@") {
		return "the endpoint"
	}
	return endpoint
}
