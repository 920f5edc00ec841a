package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/warmroute/router/prompt"
)

// Log reads a gateway's own log: JSON lines, one for each request, in any order.
//
//	{"time": 12.5, "session": "u7", "messages": [{"role": "user", "content": "Hi"}], "output_tokens": 120}
//
// The fields:
//
//	time           when it arrived: seconds as a number, or RFC 3339 in a string; needed
//	session        the name of the conversation, if any
//	output_tokens  the length of the answer; 1 if it is missing
//
// and one of these:
//
//	messages       the messages as in an OpenAI chat completion, with tools next to them
//	               if there are any; reply is the text of the answer, if it is to be
//	               cached and a later prompt repeats it
//	prompt         the text that the engine sees; reply as above
//	blocks         ids (numbers or strings) of its blocks from the first on, equal if
//	               content and place are, with block_tokens, the length of one (16
//	               if it is missing), and input_tokens
//	input_tokens   alone: a prompt that shares nothing with any other
//
// Text counts four bytes a token, whatever a tokenizer would say. Other fields are
// let pass.
func Log(name string, r io.Reader) ([]Request, error) {
	var rs []Request
	first := time.Duration(0)
	var dated *bool
	err := lines(name, r, func(line []byte) error {
		var l logLine
		if err := decode(line, &l); err != nil {
			return err
		}
		at, isDate, err := l.at()
		if err != nil {
			return err
		}
		if dated == nil {
			dated, first = &isDate, at
		}
		if *dated != isDate {
			return errors.New("time is in seconds in some lines and a date in others")
		}
		q := Request{Arrival: at, After: None, Session: l.Session, Output: max(1, l.OutputTokens)}
		if err := l.fill(&q, uint64(len(rs))); err != nil {
			return err
		}
		if err := lengths(q.Input, l.OutputTokens); err != nil {
			return err
		}
		first = min(first, at)
		rs = append(rs, q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range rs {
		rs[i].Arrival -= first
	}
	ByArrival(rs)
	return rs, nil
}

type logLine struct {
	Time         json.RawMessage   `json:"time"`
	Session      string            `json:"session"`
	Messages     []json.RawMessage `json:"messages"`
	Tools        json.RawMessage   `json:"tools"`
	Prompt       string            `json:"prompt"`
	Reply        string            `json:"reply"`
	Blocks       []blockID         `json:"blocks"`
	BlockTokens  int               `json:"block_tokens"`
	InputTokens  int               `json:"input_tokens"`
	OutputTokens int               `json:"output_tokens"`
}

// at returns the time since 1970, or since whenever the seconds are counted from.
func (l *logLine) at() (at time.Duration, date bool, err error) {
	if len(l.Time) == 0 || string(l.Time) == "null" {
		return 0, false, errors.New("no time")
	}
	if l.Time[0] == '"' {
		var t time.Time
		if err := json.Unmarshal(l.Time, &t); err != nil {
			return 0, false, fmt.Errorf("time: %w", err)
		}
		if y := t.Year(); y < 1970 || y > 2200 {
			return 0, false, fmt.Errorf("time: the year %d", y)
		}
		return t.Sub(time.Unix(0, 0)), true, nil
	}
	var s float64
	if err := json.Unmarshal(l.Time, &s); err != nil {
		return 0, false, fmt.Errorf("time: %w", err)
	}
	if !(s > -maxUnix && s < maxUnix) {
		return 0, false, fmt.Errorf("time: %v seconds", s)
	}
	return time.Duration(s * float64(time.Second)), false, nil
}

// maxUnix bounds seconds since 1970, and fits a Duration.
const maxUnix = 8e9

func (l *logLine) fill(q *Request, index uint64) error {
	kinds := 0
	for _, there := range []bool{len(l.Messages) > 0, l.Prompt != "", len(l.Blocks) > 0} {
		if there {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return errors.New("more than one of messages, prompt and blocks")
	case l.Prompt != "":
		q.Text = l.Prompt
		q.ReplyText = l.Reply
	case len(l.Messages) > 0:
		text, err := chatText(l.Messages, l.Tools)
		if err != nil {
			return err
		}
		q.Text = text
		if l.Reply != "" {
			turn, err := json.Marshal(map[string]string{"role": "assistant", "content": l.Reply})
			if err != nil {
				return err
			}
			longer, err := chatText(append(l.Messages, turn), l.Tools)
			if err != nil {
				return err
			}
			q.ReplyText = longer[len(text):]
		}
	case len(l.Blocks) > 0:
		size := l.BlockTokens
		if size == 0 {
			size = BailianBlock
		}
		if size < 1 || size > maxTokens {
			return fmt.Errorf("block_tokens is %d", size)
		}
		if l.InputTokens == 0 && len(l.Blocks) <= maxTokens/size {
			l.InputTokens = len(l.Blocks) * size
		}
		ids := make([]uint64, len(l.Blocks))
		for i, b := range l.Blocks {
			ids[i] = uint64(b)
		}
		var err error
		if q.Prompt, err = blockPieces(l.InputTokens, l.OutputTokens, ids, size); err != nil {
			return err
		}
		q.Input = l.InputTokens
		return nil
	case l.InputTokens > 0:
		q.Input = l.InputTokens
		q.Prompt = []Piece{{ID: ID(index, 0x6c6f67), Tokens: q.Input}}
		return nil
	default:
		return errors.New("none of messages, prompt, blocks and input_tokens")
	}
	q.Input = tokens(len(q.Text))
	return nil
}

// chatText is the canonical text of a chat.
func chatText(messages []json.RawMessage, tools json.RawMessage) (string, error) {
	body := struct {
		Model    string            `json:"model"`
		Messages []json.RawMessage `json:"messages"`
		Tools    json.RawMessage   `json:"tools,omitempty"`
	}{"bench", messages, tools}
	b, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	p, err := prompt.FromChat(b)
	if err != nil {
		return "", fmt.Errorf("messages: %w", err)
	}
	if p.Text == "" {
		return "", errors.New("messages: no text in them")
	}
	return p.Text, nil
}

// blockID is a number, or the hash of a string.
type blockID uint64

func (b *blockID) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*b = blockID(ID(xxhash.Sum64String(s), 0x737472))
		return nil
	}
	var n int64
	if err := json.Unmarshal(data, &n); err == nil {
		*b = blockID(n)
		return nil
	}
	var u uint64
	if err := json.Unmarshal(data, &u); err != nil {
		return errors.New("a block is neither a string nor a whole number")
	}
	*b = blockID(u)
	return nil
}
