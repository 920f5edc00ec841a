package streams_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router/kvindex/zmqsub"
	"github.com/warmroute/router/observe/streams"
)

type diary struct{ got []string }

func (d *diary) tell(a ...any)                   { d.got = append(d.got, fmt.Sprint(a...)) }
func (d *diary) Transition(to string)            { d.tell("transition ", to) }
func (d *diary) Gap(id string, last, seq uint64) { d.tell("gap ", id, " ", last, " ", seq) }
func (d *diary) Malformed(id string)             { d.tell("malformed ", id) }
func (d *diary) Overflow()                       { d.tell("overflow") }
func (d *diary) Replay(id string)                { d.tell("replay ", id) }
func (d *diary) Lag(id string, l time.Duration)  { d.tell("lag ", id, " ", l) }

func call(t zmqsub.Trace) {
	t.Transition("a", zmqsub.Cold, zmqsub.Live, "why")
	t.Gap("a", 1, 3)
	t.Malformed("b", errors.New("bad"))
	t.Overflow("topic")
	t.Replay("a", 2)
	t.Lag("a", time.Second)
}

func TestTrace(t *testing.T) {
	told := []string{"transition live", "gap a 1 3", "malformed b", "overflow", "replay a", "lag a 1s"}
	var d diary
	sink := func() streams.Sink { return &d }
	call(streams.Trace(sink, zmqsub.Trace{}))
	if diff := cmp.Diff(told, d.got); diff != "" {
		t.Error(diff)
	}

	d.got = nil
	var own diary
	call(streams.Trace(sink, zmqsub.Trace{
		Transition: func(id string, from, to zmqsub.State, why string) { own.tell(id, " ", from, " ", to, " ", why) },
		Gap:        own.Gap,
		Malformed:  func(id string, err error) { own.tell(id, " ", err) },
		Overflow:   func(topic string) { own.tell(topic) },
		Replay:     func(id string, start uint64) { own.tell(id, " ", start) },
		Lag:        own.Lag,
	}))
	if diff := cmp.Diff(told, d.got); diff != "" {
		t.Error(diff)
	}
	want := []string{"a cold live why", "gap a 1 3", "b bad", "topic", "a 2", "lag a 1s"}
	if diff := cmp.Diff(want, own.got); diff != "" {
		t.Error(diff)
	}
}
