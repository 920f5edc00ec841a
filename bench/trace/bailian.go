package trace

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// BailianBlock is the number of tokens for which one hash id of a Qwen-Bailian
// trace stands.
const BailianBlock = 16

// Bailian reads a trace in the form of the Qwen-Bailian traces: JSON lines with
// chat_id, parent_chat_id (-1: none), timestamp (s), input_length, output_length,
// type, turn and hash_ids, one for each block of 16 tokens, of which the last may
// be a part of one or be missing. The arrivals are those that were recorded: a
// turn does not wait for the answer to the one before.
func Bailian(name string, r io.Reader) ([]Request, error) {
	var rs []Request
	session := make(map[int64]string)
	last := 0.0
	err := lines(name, r, func(line []byte) error {
		var l struct {
			ChatID       *int64   `json:"chat_id"`
			Parent       *int64   `json:"parent_chat_id"`
			Timestamp    *float64 `json:"timestamp"`
			InputLength  int      `json:"input_length"`
			OutputLength int      `json:"output_length"`
			HashIDs      []uint64 `json:"hash_ids"`
		}
		if err := decode(line, &l); err != nil {
			return err
		}
		switch {
		case l.ChatID == nil:
			return errors.New("no chat_id")
		case l.Timestamp == nil:
			return errors.New("no timestamp")
		case *l.Timestamp < last:
			return fmt.Errorf("timestamp %v comes after %v", *l.Timestamp, last)
		case !(*l.Timestamp < maxSeconds):
			return fmt.Errorf("timestamp %v is too late", *l.Timestamp)
		}
		last = *l.Timestamp
		// Only whole blocks, in some of the files: no other request has the
		// rest.
		var rest []Piece
		in := l.InputLength
		if n := len(l.HashIDs) * BailianBlock; n < in && in-n < BailianBlock {
			rest = []Piece{{ID: ID(uint64(*l.ChatID), 0x72657374), Tokens: in - n}}
			in = n
		}
		var prompt []Piece
		if in > 0 {
			var err error
			if prompt, err = blockPieces(in, l.OutputLength, l.HashIDs, BailianBlock); err != nil {
				return err
			}
		}
		if err := lengths(l.InputLength, l.OutputLength); err != nil {
			return err
		}
		s, ok := "", false
		if l.Parent != nil && *l.Parent >= 0 {
			s, ok = session[*l.Parent]
		}
		if !ok {
			s = "chat-" + strconv.FormatInt(*l.ChatID, 10)
		}
		session[*l.ChatID] = s
		rs = append(rs, Request{
			Arrival: time.Duration(*l.Timestamp * float64(time.Second)),
			After:   None,
			Session: s,
			Prompt:  append(prompt, rest...),
			Input:   l.InputLength,
			Output:  max(1, l.OutputLength),
		})
		return nil
	})
	return rs, err
}

// maxSeconds bounds a time in a trace: ten years.
const maxSeconds = 10 * 366 * 86400
