package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Delta reads agents' calls that were recorded with their text, each as its
// addition to the previous call of its session: JSON lines with ts_us, session,
// keep (leading bytes of the prompt before), suffix, input_bytes and output.
// Calls with an empty prompt are omitted.
//
// A session begins when it did; each further call comes Think after the answer to
// the one before, which is half of the time that was between them: how much of
// that was the model's is not recorded.
func Delta(name string, r io.Reader) ([]Request, error) {
	type state struct {
		prompt string
		last   int // index of the request before
		ts     int64
	}
	sessions := make(map[string]*state)
	var rs []Request
	size := 0
	err := lines(name, r, func(line []byte) error {
		var l struct {
			TS         *int64 `json:"ts_us"`
			Session    string `json:"session"`
			Keep       int    `json:"keep"`
			Suffix     string `json:"suffix"`
			InputBytes int    `json:"input_bytes"`
			Output     string `json:"output"`
		}
		if err := decode(line, &l); err != nil {
			return err
		}
		if l.TS == nil || *l.TS < 0 || *l.TS > maxSeconds*1e6 {
			return errors.New("no ts_us, or one out of range")
		}
		s := sessions[l.Session]
		if s == nil {
			s = &state{last: None}
			sessions[l.Session] = s
		}
		if l.Keep < 0 || l.Keep > len(s.prompt) {
			return fmt.Errorf("keep is %d; the prompt before has %d bytes", l.Keep, len(s.prompt))
		}
		text := s.prompt[:l.Keep] + l.Suffix
		if len(text) != l.InputBytes {
			return fmt.Errorf("the prompt comes to %d bytes; input_bytes is %d", len(text), l.InputBytes)
		}
		if size += len(text); size > maxText {
			return fmt.Errorf("the prompts come to more than %d bytes", maxText)
		}
		if s.last != None && l.Keep == len(s.prompt) {
			// If the prompt continues with the answer, this is the engine's output,
			// with the marks of the template before it.
			if at := strings.Index(l.Suffix, rs[s.last].ReplyText); at >= 0 && at <= 64 {
				rs[s.last].ReplyText = l.Suffix[:at+len(rs[s.last].ReplyText)]
			}
		}
		s.prompt = text
		if text == "" {
			return nil
		}
		q := Request{
			Arrival: time.Duration(*l.TS) * time.Microsecond, After: s.last, Session: l.Session,
			Text: text, Input: tokens(len(text)), Output: tokens(len(l.Output)), ReplyText: l.Output,
		}
		if s.last != None {
			q.Think = time.Duration(max(0, *l.TS-s.ts)) * time.Microsecond / 2
		}
		s.last, s.ts = len(rs), *l.TS
		rs = append(rs, q)
		return nil
	})
	return rs, err
}

// maxText bounds the text of a trace.
const maxText = 1 << 30

// Copies returns n copies of each session of rs, which have text and follow each
// other, as if n times as many had been recorded: copy k begins k/n of the span
// later, wrapped around. The part that sessions have in common stays common to
// all; after it each copy has its own text of the same length.
func Copies(rs []Request, n int) []Request {
	shared := sharedWithOthers(rs)
	span := time.Duration(1)
	for i := range rs {
		if rs[i].After == None {
			span = max(span, rs[i].Arrival+time.Nanosecond)
		}
	}
	out := make([]Request, 0, n*len(rs))
	for k := range n {
		from := len(out)
		for i, r := range rs {
			if r.After == None {
				r.Arrival = (r.Arrival + span*time.Duration(k)/time.Duration(n)) % span
			} else {
				r.After += from
			}
			if k > 0 {
				r.Session = fmt.Sprintf("%s/%d", r.Session, k)
				r.Text = r.Text[:shared[i]] + rotate(r.Text[shared[i]:], k)
				r.ReplyText = rotate(r.ReplyText, k)
			}
			out = append(out, r)
		}
	}
	return order(out)
}

// rotate moves each ASCII letter k places on.
func rotate(s string, k int) string {
	k %= 26
	b := []byte(s)
	for i, c := range b {
		switch {
		case 'a' <= c && c <= 'z':
			b[i] = 'a' + (c-'a'+byte(k))%26
		case 'A' <= c && c <= 'Z':
			b[i] = 'A' + (c-'A'+byte(k))%26
		}
	}
	return string(b)
}

// sharedWithOthers returns for each request the longest beginning that a request
// of another session has too.
func sharedWithOthers(rs []Request) []int {
	idx := make([]int, len(rs))
	for i := range idx {
		idx[i] = i
	}
	slices.SortFunc(idx, func(a, b int) int {
		return cmp.Or(strings.Compare(rs[a].Text, rs[b].Text), cmp.Compare(a, b))
	})
	out := make([]int, len(rs))
	// In sorted order the best neighbour of another session is the next one on
	// either side, and all between them share at least as much.
	sweep := func(idx []int) {
		common, other := 0, None
		for n, i := range idx {
			if n > 0 {
				before := idx[n-1]
				c := commonPrefix(rs[before].Text, rs[i].Text)
				if rs[before].Session != rs[i].Session {
					other, common = before, c
				} else {
					common = min(common, c)
				}
			}
			if other != None {
				out[i] = max(out[i], common)
			}
		}
	}
	sweep(idx)
	slices.Reverse(idx)
	sweep(idx)
	return out
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Tau reads the trajectories of tau-bench: a JSON array of objects with traj, a
// list of chat messages. Each message of the assistant is a request with all
// earlier messages as its prompt. The file has no times: the caller generates
// sessions and thinking times.
func Tau(name string, r io.Reader) ([]Request, error) {
	var all []struct {
		Traj []json.RawMessage `json:"traj"`
	}
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var rs []Request
	for n, t := range all {
		after, text := None, ""
		for i, m := range t.Traj {
			var head struct {
				Role string `json:"role"`
			}
			if err := json.Unmarshal(m, &head); err != nil {
				return nil, fmt.Errorf("%s: trajectory %d, message %d: %w", name, n, i, err)
			}
			if head.Role != "assistant" || i == 0 {
				continue
			}
			var err error
			if text, err = chatText(t.Traj[:i], nil); err != nil {
				return nil, fmt.Errorf("%s: trajectory %d, message %d: %w", name, n, i, err)
			}
			longer, err := chatText(t.Traj[:i+1], nil)
			if err != nil {
				return nil, fmt.Errorf("%s: trajectory %d, message %d: %w", name, n, i, err)
			}
			reply, _ := strings.CutPrefix(longer, text)
			rs = append(rs, Request{
				After: after, Session: fmt.Sprintf("trajectory-%d", n),
				Text: text, Input: tokens(len(text)), Output: tokens(len(reply)), ReplyText: reply,
			})
			after = len(rs) - 1
		}
	}
	if len(rs) == 0 {
		return nil, fmt.Errorf("%s: has no trajectory with an answer", name)
	}
	return rs, nil
}
