package streams_test

import (
	"fmt"
	"time"

	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/observe/streams"
)

// counter is a Sink of one's own.
type counter struct{ gaps, missing int }

func (c *counter) Gap(_ string, last, seq uint64) {
	c.gaps, c.missing = c.gaps+1, c.missing+int(seq-last-1)
}
func (*counter) Transition(string)         {}
func (*counter) Malformed(string)          {}
func (*counter) Overflow()                 {}
func (*counter) Replay(string)             {}
func (*counter) Lag(string, time.Duration) {}

func ExampleTrace() {
	var c counter
	trace := streams.Trace(func() streams.Sink { return &c }, zmqsub.Trace{}) // for zmqsub.Config.Trace
	trace.Gap("vllm-1", 7, 10)
	fmt.Println(c.gaps, "gap,", c.missing, "messages")
	// Output: 1 gap, 2 messages
}
