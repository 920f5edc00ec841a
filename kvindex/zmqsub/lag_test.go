package zmqsub

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/vllmtest"
)

// made is batch with the time at which it was made.
func made(n int, at float64) []byte {
	b := batch(n)
	binary.BigEndian.PutUint64(b[2:], math.Float64bits(at))
	return b
}

// The age of live messages is measured, whatever they say of their age;
// replayed ones, which are old, and those without a time do not.
func TestLag(t *testing.T) {
	everywhere(t, func(t *testing.T, nw func(egress.Policy) (network, error), pub func(testing.TB,
		vllmtest.Events) publisher) {
		p := pub(t, vllmtest.Events{})
		defer p.Close()
		publish(p, 0, 9)
		d := newDiary(t)
		lags := make(chan time.Duration, 100)
		s := start(t, nw, Config{Endpoint: p.Endpoint(), Targets: target(p), Index: d, Trace: Trace{
			Lag: func(id string, lag time.Duration) {
				if id != "a" {
					t.Errorf("id %q", id)
				}
				lags <- lag
			},
		}})
		eventually(t, "the past is replayed", func() bool { return d.holds("a", 0, 9) && s.State("a") == Live })
		// The publisher may not have heard of the subscription: then the replay brings
		// what it sends.
		last := 9
		eventually(t, "messages come live", func() bool {
			last++
			publish(p, last, last)
			return s.Stats().Messages > 0
		})
		eventually(t, "they are applied", func() bool { return d.holds("a", 0, uint64(last)) })
		for len(lags) > 0 {
			<-lags
		}

		now := float64(time.Now().UnixNano()) / 1e9
		for i, at := range []float64{now - 50, 0, math.NaN(), math.Inf(1), math.Inf(-1), now + 1000} {
			p.Publish(made(last+1+i, at))
		}
		eventually(t, "live messages come", func() bool { return d.holds("a", 0, uint64(last)+6) && len(lags) >= 4 })

		var got []time.Duration
		for range 4 {
			got = append(got, <-lags)
		}
		if g := got[0]; g < 49*time.Second || g > 200*time.Second {
			t.Errorf("made 50 s ago: %v", g)
		}
		if got[1] != -1e9*time.Second || got[2] != 1e9*time.Second {
			t.Errorf("without bounds: %v, %v", got[1], got[2])
		}
		if g := got[3]; g < -1001*time.Second || g > -800*time.Second {
			t.Errorf("made in 1,000 s: %v", g)
		}
		select {
		case l := <-lags:
			t.Errorf("one more: %v", l)
		default:
		}
	})
}
