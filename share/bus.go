package share

import (
	"context"
	"errors"
	"time"
)

// MaxFrame bounds a frame, a request and a reply, in bytes. It is below the default of a NATS server, 1 MiB.
const MaxFrame = 256 << 10

var (
	// ErrNoPeer is found by errors.Is in the error of a Request that nobody serves.
	ErrNoPeer = errors.New("share: no peer answers")
	// ErrDropped is found by errors.Is in the error of a Publish that had to drop the frame: the bus is not
	// connected, or as much as its bound allows is waiting already.
	ErrDropped = errors.New("share: frame dropped")
)

// A Bus carries frames between the gateways of a fleet. Frames are small and many, and each may be lost, doubled
// or late: a Bus keeps nothing for subscribers that are not there. [NewMemory] returns one for tests; the modules
// contrib/nats and contrib/redis have those for production. Package bustest tests one.
//
// A subject has letters, digits, dots and hyphens, and no wildcards. All methods are safe for concurrent use.
type Bus interface {
	// Publish hands data to every subscriber of subject, those of this process included. It never waits for the
	// network: a frame that does not fit into the bound of the waiting ones is dropped, with an error that is
	// ErrDropped. data may be changed after Publish has returned.
	Publish(subject string, data []byte) error
	// Subscribe calls receive for each frame of subject, one at a time, until stop is called. receive must not
	// keep data, and must not call stop. Frames that receive is too slow for are dropped and counted. A Bus that
	// is not connected subscribes as soon as it is.
	Subscribe(subject string, receive func(data []byte)) (stop func(), err error)
	// Serve answers requests to subject by answer, until stop is called. answer must not keep request. An answer
	// has at most MaxFrame bytes; nil answers nothing.
	Serve(subject string, answer func(request []byte) (reply []byte)) (stop func(), err error)
	// Request sends data to one that serves subject and returns its reply. The error is ErrNoPeer if nobody does,
	// else that of ctx or of the bus.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	// State returns the state of the connection, for pages and metrics.
	State() BusState
}

// BusState is the state of a Bus.
type BusState struct {
	// Connected reports whether frames can be sent now, Since when that began or ended; zero if it never did.
	Connected bool
	Since     time.Time
	// Err is the last error, nil if there was none since the Bus connected.
	Err error
	// Sent and Received count frames, and Dropped those that were given up, sent and received ones together.
	Sent, Received, Dropped uint64
}
