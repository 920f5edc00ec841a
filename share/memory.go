package share

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// memoryQueue is the number of frames that wait for one subscriber of a Memory.
const memoryQueue = 1024

// Memory is a Bus inside one process, for tests: several gateways of one process share it. Frames arrive in the
// order of Publish. It is always connected.
type Memory struct {
	since                   time.Time
	sent, received, dropped atomic.Uint64

	mu       sync.RWMutex
	subs     map[string][]*memorySub
	services map[string][]*memoryService
	turn     uint64
}

var _ Bus = (*Memory)(nil)

type memorySub struct {
	frames chan []byte
	stop   chan struct{}
}

type memoryService struct{ answer func([]byte) []byte }

// NewMemory returns a Bus without subscribers.
func NewMemory() *Memory {
	return &Memory{since: time.Now(), subs: map[string][]*memorySub{}, services: map[string][]*memoryService{}}
}

// Publish queues a copy of data for each subscriber of subject. A subscriber with 1,024 frames waiting does not
// get it; then the error is ErrDropped.
func (m *Memory) Publish(subject string, data []byte) error {
	if len(data) > MaxFrame {
		m.dropped.Add(1)
		return fmt.Errorf("%w: it has %d bytes", ErrDropped, len(data))
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.sent.Add(1)
	lost := 0
	for _, s := range m.subs[subject] {
		select {
		case s.frames <- slices.Clone(data):
		default:
			lost++
		}
	}
	if lost > 0 {
		m.dropped.Add(uint64(lost))
		return fmt.Errorf("%w: %d subscribers are slow", ErrDropped, lost)
	}
	return nil
}

// Subscribe calls receive in a goroutine of its own, which ends soon after stop.
func (m *Memory) Subscribe(subject string, receive func(data []byte)) (stop func(), err error) {
	s := &memorySub{frames: make(chan []byte, memoryQueue), stop: make(chan struct{})}
	m.mu.Lock()
	m.subs[subject] = append(m.subs[subject], s)
	m.mu.Unlock()
	go func() {
		for {
			select {
			case <-s.stop:
				return
			case data := <-s.frames:
				m.received.Add(1)
				receive(data)
			}
		}
	}()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.subs[subject] = without(m.subs[subject], s)
		close(s.stop)
	}), nil
}

// Serve has answer called by the goroutines of the requests.
func (m *Memory) Serve(subject string, answer func(request []byte) (reply []byte)) (stop func(), err error) {
	s := &memoryService{answer}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.services[subject] = append(m.services[subject], s)
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.services[subject] = without(m.services[subject], s)
	}), nil
}

// without returns a copy of all without x, so that who reads all is not disturbed.
func without[T comparable](all []T, x T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(y T) bool { return y == x })
}

// Request asks those that serve subject in turn.
func (m *Memory) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	all := m.services[subject]
	m.turn++
	turn := m.turn
	m.mu.Unlock()
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, subject)
	}
	reply := all[turn%uint64(len(all))].answer(slices.Clone(data))
	switch {
	case reply == nil:
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, subject)
	case len(reply) > MaxFrame:
		return nil, fmt.Errorf("share: a reply of %d bytes", len(reply))
	}
	return slices.Clone(reply), nil
}

// State returns the counts. The bus is always connected.
func (m *Memory) State() BusState {
	return BusState{Connected: true, Since: m.since, Sent: m.sent.Load(), Received: m.received.Load(),
		Dropped: m.dropped.Load()}
}
