package config

import (
	"time"

	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
)

// Queue returns the line in which requests of all routes wait, nil if the file in place
// has none.
func (g *Gateway) Queue() *admission.Queue { return g.now.Load().queue }

// setQueue makes the line of s, or takes that of the state before with other settings.
func (s *state) setQueue(q *file.Queue, o Options, old *state) error {
	if !q.Enabled {
		return nil
	}
	s.queueConfig = q.Config()
	s.queueConfig.Class, s.queueConfig.Trace = o.Class, o.QueueTrace
	if old != nil && old.queue != nil {
		s.queue = old.queue
		return nil // its settings change when s is in place
	}
	var err error
	s.queue, err = admission.New(s.queueConfig)
	return err
}

// settleQueue brings the line to the settings of s, which is in place, or lets go those
// that wait in a line that s has no more.
func (g *Gateway) settleQueue(s, old *state) error {
	switch {
	case old == nil || old.queue == nil:
	case s.queue == old.queue:
		return s.queue.SetConfig(s.queueConfig)
	default:
		go drain(old.queue, old.queueConfig.WithDefaults().MaxWait)
	}
	return nil
}

// drain sees to it that the requests in q are tried until none waits: Routers without a
// line do not say that a place is free.
func drain(q *admission.Queue, most time.Duration) {
	end := time.Now().Add(most)
	for q.Stats().Waiting > 0 && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
		q.Freed()
	}
}
