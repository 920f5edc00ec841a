package redis

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/warmroute/router/share"
)

// A request is 8 bytes of its number, 32 of the name of the inbox, and its data; a reply, in the channel of that inbox,
// the number and the data.
const (
	idLen    = 8
	inboxLen = 32
)

// Serve is share.Bus's. If several serve a subject, each gets all requests, and the first reply counts.
func (b *Bus) Serve(subject string, answer func(request []byte) (reply []byte)) (stop func(), err error) {
	return b.subscribe(b.requests(subject), &subscriber{receive: func(m []byte) {
		if len(m) < idLen+inboxLen || len(m) > idLen+inboxLen+share.MaxFrame {
			return
		}
		inbox := string(m[idLen : idLen+inboxLen])
		if _, err := hex.DecodeString(inbox); err != nil {
			return
		}
		id := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(m))
		reply := answer(m[idLen+inboxLen:])
		if reply == nil || len(reply) > share.MaxFrame {
			return
		}
		if b.enqueue(message{channel: b.replies(inbox), data: append(id, reply...)}) != nil {
			b.dropped.Add(1) // who asks again gets it again
		}
	}})
}

func (b *Bus) replied(m []byte) {
	if len(m) < idLen {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.asked[binary.BigEndian.Uint64(m)]; c != nil {
		select {
		case c <- m[idLen:]:
		default: // another was quicker
		}
	}
}

// Request is share.Bus's. Without a deadline of ctx it is given up after 10 s. In a cluster nobody knows if anybody
// serves: there the error is share.ErrNoPeer if no reply has come after 2 s.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(data) > share.MaxFrame {
		return nil, fmt.Errorf("redis: a request of %d bytes", len(data))
	}
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	reply := make(chan []byte, 1)
	b.mu.Lock()
	connected := b.hearing && b.speaking
	b.lastID++
	id := b.lastID
	b.asked[id] = reply
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.asked, id)
	}()
	if !connected {
		return nil, fmt.Errorf("redis: %s: %w", subject, errNotConnected)
	}
	node, err := b.node(ctx)
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", subject, err)
	}
	m := append(append(binary.BigEndian.AppendUint64(nil, id), b.inbox...), data...)
	n, err := node.Publish(ctx, b.requests(subject), m).Result()
	noPeer := fmt.Errorf("redis: %s: %w", subject, share.ErrNoPeer)
	var last <-chan time.Time // nil, for ever, but in a cluster
	switch {
	case err != nil:
		return nil, fmt.Errorf("redis: %s: %w", subject, errors.Join(err, ctx.Err()))
	case b.cfg.Cluster:
		t := time.NewTimer(clusterWait)
		defer t.Stop()
		last = t.C
	case n == 0:
		return nil, noPeer
	}
	select {
	case r := <-reply:
		return r, nil
	case <-last:
		return nil, noPeer
	case <-ctx.Done():
		return nil, fmt.Errorf("redis: %s: %w", subject, ctx.Err())
	case <-b.ctx.Done():
		return nil, errClosed
	}
}
