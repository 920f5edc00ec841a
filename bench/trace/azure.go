package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Azure reads a trace in the form of the Azure LLM inference traces: CSV with
// TIMESTAMP, ContextTokens and GeneratedTokens. The trace does not show which
// prompts share a prefix, so none do.
func Azure(name string, r io.Reader) ([]Request, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = 3
	c.ReuseRecord = true
	fail := func(err error) ([]Request, error) {
		line, _ := c.FieldPos(0)
		return nil, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	var rs []Request
	var first time.Time
	for n := 0; ; n++ {
		row, err := c.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err) // it has the line
		}
		if n == 0 {
			if row[0] != "TIMESTAMP" || row[1] != "ContextTokens" || row[2] != "GeneratedTokens" {
				return fail(errors.New("the columns are not TIMESTAMP, ContextTokens, GeneratedTokens"))
			}
			continue
		}
		at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
		if err != nil {
			return fail(err)
		}
		in, err := strconv.Atoi(row[1])
		if err != nil {
			return fail(err)
		}
		out, err := strconv.Atoi(row[2])
		if err != nil {
			return fail(err)
		}
		if err := lengths(in, out); err != nil {
			return fail(err)
		}
		if n == 1 {
			first = at
		}
		since := at.Sub(first)
		if since < 0 || len(rs) > 0 && since < rs[len(rs)-1].Arrival {
			return fail(fmt.Errorf("%s comes before the line ahead of it", row[0]))
		}
		rs = append(rs, Request{
			Arrival: since, After: None, Input: in, Output: max(1, out),
			Prompt: []Piece{{ID: ID(uint64(n), 0x617a757265), Tokens: in}},
		})
	}
	if len(rs) == 0 {
		return nil, fmt.Errorf("%s: is empty", name)
	}
	return rs, nil
}
