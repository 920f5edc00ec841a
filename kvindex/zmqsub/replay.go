package zmqsub

import (
	"context"
	"encoding/binary"
	"errors"
	"time"
)

// ask begins a replay, and makes an earlier one void.
func (st *stream) ask(start uint64, attempt int) {
	st.hangUp()
	st.asked++
	ctx, cancel := context.WithCancel(st.run.ctx)
	st.cancel = cancel
	r, n := st.run, st.asked
	r.s.n.replays.Add(1)
	if f := r.s.cfg.Trace.Replay; f != nil {
		f(st.target.ID, start)
	}
	r.wg.Go(func() {
		defer cancel()
		end := endEarly
		// Not at once if the last one brought nothing.
		if attempt <= 1 || sleep(ctx, r.s.cfg.MinBackoff<<min(attempt-1, 4)) {
			end = r.replay(ctx, st, n, start)
		}
		if ctx.Err() == nil {
			r.notify(r.replies, event{kind: replayEnded, stream: st, ask: n, end: end})
		}
	})
}

func (st *stream) hangUp() {
	if st.cancel != nil {
		st.cancel()
		st.cancel = nil
		st.asked++ // replies on their way are to an older question now
	}
}

func (st *stream) reconnect() {
	if st.run.s.cfg.Bind {
		st.rejoin = true // it is the engines that connect
		return
	}
	select {
	case st.run.again <- struct{}{}:
	default:
	}
}

// replay asks for all messages from start on and hands them over. A connection is
// used once, so that no reply can be taken for one to another question. It reads
// no further while the replies that it has read have no place to wait.
func (r *run) replay(ctx context.Context, st *stream, n, start uint64) ending {
	address, _ := address(st.target.Replay, false)
	ctx, cancel := context.WithTimeout(ctx, r.s.cfg.ReplayTimeout)
	defer cancel()
	var quiet *time.Timer
	taken := 0
	grow := func(bytes int) error {
		quiet.Stop() // the engine is not to blame for the wait
		defer quiet.Reset(r.s.cfg.ReplayQuiet)
		wait, cancel := context.WithTimeoutCause(ctx, r.s.cfg.DialTimeout, errNoBytes)
		defer cancel()
		if err := r.replyBytes.take(wait, bytes); err != nil {
			return err
		}
		taken += bytes
		return nil
	}
	release := func() {
		r.replyBytes.give(taken)
		taken = 0
	}
	defer release()
	dctx, dcancel := context.WithTimeout(ctx, r.s.cfg.DialTimeout)
	w, err := r.net.dial(dctx, asker, address, nil, r.limits(grow))
	dcancel()
	if err != nil {
		return endEarly
	}
	defer w.close()
	defer context.AfterFunc(ctx, w.interrupt)()
	if w.send(nil, binary.BigEndian.AppendUint64(nil, start)) != nil {
		return endEarly
	}
	quiet = time.AfterFunc(r.s.cfg.ReplayQuiet, w.interrupt)
	defer quiet.Stop()
	for {
		frames, err := w.recv()
		release()
		if err != nil {
			return endEarly
		}
		seq, payload, err := reply(frames)
		if err != nil {
			r.malformed(st.target.ID, err)
			return endEarly
		}
		if seq == 1<<64-1 {
			return endMarker
		}
		e := event{kind: replayArrived, stream: st, ask: n, msg: r.message(seq, payload)}
		quiet.Stop()
		if r.replyBytes.take(ctx, e.size()) != nil {
			return endEarly
		}
		select {
		case r.replies <- e:
		case <-ctx.Done():
			r.replyBytes.give(e.size())
			return endEarly
		}
		quiet.Reset(r.s.cfg.ReplayQuiet)
	}
}

// reply reads a reply: an empty frame, in newer engines the topic, the sequence
// number, the payload.
func reply(frames [][]byte) (seq uint64, payload []byte, err error) {
	if len(frames) > 0 && len(frames[0]) == 0 {
		frames = frames[1:]
	}
	if len(frames) == 3 {
		frames = frames[1:]
	}
	if len(frames) != 2 || len(frames[0]) != 8 {
		return 0, nil, errors.New("zmqsub: a reply that is not sequence number and payload")
	}
	return binary.BigEndian.Uint64(frames[0]), frames[1], nil
}
