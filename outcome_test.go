package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmroute/router"
)

// The rules word by word, for every stage and status, and errors of each kind.
func TestRetryableAndBlames(t *testing.T) {
	refused := func(status int) bool { return status == 408 || status == 429 || status >= 500 && status <= 599 }
	dial := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	read := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	timeouts := []error{context.DeadlineExceeded, router.ErrAttemptTimeout, fmt.Errorf("send: %w", read)}
	for status := -1; status <= 1000; status++ {
		for stage := router.Stage(0); stage <= router.Canceled+1; stage++ {
			for _, err := range append(timeouts, nil, errRefused, fmt.Errorf("send: %w", dial), context.Canceled) {
				var late bool
				for _, e := range timeouts {
					late = late || err == e
				}
				failed := stage == router.Failed
				if !stage.Final() {
					failed = err != nil && err != context.Canceled ||
						err == nil && (status >= 400 || status < 0 || status > 0 && status < 100)
				}
				o := router.Outcome{Stage: stage, Status: status, Err: err}
				blames := failed && (status < 100 && status != 0 || status > 599 || status == 0 || refused(status) ||
					status < 400 && err != nil)
				if got := o.Blames(); got != blames {
					t.Fatalf("%+v blames: %v", o, got)
				}
				retryable := failed && stage != router.FirstToken &&
					(refused(status) || status < 400 && !late && (status == 0 || err != nil))
				if got := o.Retryable(); got != retryable {
					t.Fatalf("%+v is retryable: %v", o, got)
				}
				for _, seen := range []router.Outcome{{OutputTokens: 1}, {Reply: "R"}} {
					seen.Stage, seen.Status, seen.Err = stage, status, err
					if seen.Retryable() || seen.Blames() != blames {
						t.Fatalf("%+v is retryable %v, blames %v", seen, seen.Retryable(), seen.Blames())
					}
				}
				o.NotSent = true
				retryable = stage != router.FirstToken // such a request Failed, whatever is said of it
				if o.Retryable() != retryable || o.Blames() != (blames && stage == router.FirstToken) {
					t.Fatalf("%+v is retryable %v, blames %v", o, o.Retryable(), o.Blames())
				}
				o.NotSent, o.Lacking = false, true
				redirect := status >= 300 && status <= 399
				lacking := (failed || redirect && err == nil && !stage.Final()) && !(redirect && late) &&
					(redirect || status == 401 || status == 403 || status == 404) && stage != router.FirstToken
				if o.Retryable() != (lacking || router.Outcome{Stage: stage, Status: status, Err: err}.Retryable()) {
					t.Fatalf("%+v is retryable: %v", o, o.Retryable())
				}
			}
		}
	}
}

func TestSettled(t *testing.T) {
	for name, tt := range map[string]struct{ in, want router.Outcome }{
		"nothing":            {router.Outcome{}, router.Outcome{Stage: router.Finished}},
		"a status":           {router.Outcome{Status: 503}, router.Outcome{Stage: router.Failed, Status: 503}},
		"no status of HTTP":  {router.Outcome{Status: 99}, router.Outcome{Stage: router.Failed, Status: 99}},
		"below all statuses": {router.Outcome{Status: -1}, router.Outcome{Stage: router.Failed, Status: -1}},
		"100":                {router.Outcome{Status: 100}, router.Outcome{Stage: router.Finished, Status: 100}},
		"an error":           {router.Outcome{Err: io.EOF}, router.Outcome{Stage: router.Failed, Err: io.EOF}},
		"canceled": {router.Outcome{Err: context.Canceled},
			router.Outcome{Stage: router.Canceled, Err: context.Canceled}},
		"final": {router.Outcome{Stage: router.Finished, Err: io.EOF},
			router.Outcome{Stage: router.Finished, Err: io.EOF}},
		"not sent": {router.Outcome{NotSent: true, Status: 200},
			router.Outcome{Stage: router.Failed, NotSent: true}},
		"not sent, a token": {
			router.Outcome{NotSent: true, OutputTokens: 1}, router.Outcome{Stage: router.Finished, OutputTokens: 1}},
		"timed out": {
			router.Outcome{Err: router.ErrAttemptTimeout}, router.Outcome{Stage: router.Failed, Err: router.ErrAttemptTimeout}},
	} {
		if diff := cmp.Diff(tt.want, tt.in.Settled(), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var timeout interface{ Timeout() bool }
	if !errors.As(router.ErrAttemptTimeout, &timeout) || !timeout.Timeout() {
		t.Error("ErrAttemptTimeout is no time-out")
	}
}

// Progress against a list of all that counted, for every sequence of stages.
func TestProgress(t *testing.T) {
	all := []router.Outcome{
		{}, {Stage: router.Sent}, {Stage: router.FirstToken}, {Stage: router.Finished}, {Stage: router.Failed},
		{Stage: router.Failed, OutputTokens: 1}, {Stage: router.Canceled, Reply: "R"}, {Stage: 77, Reply: "R"},
	}
	var walk func(p router.Progress, counted []router.Outcome, depth int)
	walk = func(p router.Progress, counted []router.Outcome, depth int) {
		if depth == 0 {
			return
		}
		for _, o := range all {
			n := len(counted)
			last := router.Stage(0)
			if n > 0 {
				last = counted[n-1].Stage
			}
			counts := o.Stage == router.Sent && n == 0 || o.Stage == router.FirstToken && last == router.Sent ||
				o.Stage.Final() && n > 0 && !last.Final()
			now, after := p, counted[:n:n]
			want := router.Stage(0)
			if counts {
				want, after = o.Stage, append(after, o)
			}
			token := false
			for _, c := range after {
				token = token || c.SawToken()
			}
			if got := now.Next(o); got != want || now.SawToken() != token {
				t.Fatalf("%+v after %+v: %v, token %v", o, counted, got, now.SawToken())
			}
			back := len(after) > 0 && after[len(after)-1].Stage == router.Failed && !token
			if now.TakenBack() != back {
				t.Fatalf("%+v is taken back: %v", after, now.TakenBack())
			}
			walk(now, after, depth-1)
		}
	}
	walk(router.Progress{}, nil, 5)
	if n := testing.AllocsPerRun(10, func() {
		new(router.Progress).Next(router.Outcome{Stage: router.Sent,
			RetryAfter: time.Second})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
