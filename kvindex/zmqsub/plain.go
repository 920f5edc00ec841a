package zmqsub

import (
	"context"

	"github.com/warmroute/router/egress"
)

// plain is a network of our own connections.
type plain struct{ d *egress.Dialer }

func (p plain) dial(ctx context.Context, as role, address string, topics []string, lim limits) (wire, error) {
	c, err := p.d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newConn(ctx, c, as, topics, lim)
}

func (plain) close() {}
