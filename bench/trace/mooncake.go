package trace

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// MooncakeBlock is the number of tokens for which one hash id of a Mooncake trace
// stands.
const MooncakeBlock = 512

// quantum is the step of the times in the Mooncake conversation trace.
const quantum = 3 * time.Second

// Mooncake reads a trace in the form of the Mooncake project: JSON lines with
// timestamp (ms), input_length, output_length and hash_ids, one for each block of
// 512 tokens, of which the last may be a part of one. The answers are not known.
func Mooncake(name string, r io.Reader) ([]Request, error) {
	var rs []Request
	last := int64(0)
	err := lines(name, r, func(line []byte) error {
		var l struct {
			Timestamp    *int64   `json:"timestamp"`
			InputLength  int      `json:"input_length"`
			OutputLength int      `json:"output_length"`
			HashIDs      []uint64 `json:"hash_ids"`
		}
		if err := decode(line, &l); err != nil {
			return err
		}
		if l.Timestamp == nil {
			return errors.New("no timestamp")
		}
		if *l.Timestamp < last {
			return fmt.Errorf("timestamp %d comes after %d", *l.Timestamp, last)
		}
		last = *l.Timestamp
		prompt, err := blockPieces(l.InputLength, l.OutputLength, l.HashIDs, MooncakeBlock)
		if err != nil {
			return err
		}
		rs = append(rs, Request{
			Arrival: time.Duration(*l.Timestamp) * time.Millisecond,
			After:   None,
			Prompt:  prompt,
			Input:   l.InputLength,
			Output:  max(1, l.OutputLength),
		})
		return nil
	})
	return rs, err
}

// blockPieces makes pieces of hash ids of blocks of size tokens.
func blockPieces(in, out int, ids []uint64, size int) ([]Piece, error) {
	if err := lengths(in, out); err != nil {
		return nil, err
	}
	if want := (in + size - 1) / size; len(ids) != want {
		return nil, fmt.Errorf("%d hash ids for %d tokens; blocks of %d make %d", len(ids), in, size, want)
	}
	ps := make([]Piece, len(ids))
	for i, id := range ids {
		ps[i] = Piece{ID: id, Tokens: min(size, in-i*size)}
	}
	return ps, nil
}

// Spread returns rs with requests that were recorded at one instant spread over
// the time to the next instant that was recorded, at most over gap: the order
// stays, the first one stays, the others are put at random, the same for a seed.
func Spread(rs []Request, gap time.Duration, seed uint64) []Request {
	rs = slices.Clone(rs)
	draw := rng(seed, 101)
	for i := 0; i < len(rs); {
		j := i + 1
		for j < len(rs) && rs[j].Arrival == rs[i].Arrival {
			j++
		}
		room := gap
		if j < len(rs) {
			room = min(gap, rs[j].Arrival-rs[i].Arrival)
		}
		at := make([]time.Duration, j-i-1)
		for k := range at {
			at[k] = rs[i].Arrival + time.Duration(draw.Int64N(int64(room)))
		}
		slices.Sort(at)
		for k := range at {
			rs[i+1+k].Arrival = at[k]
		}
		i = j
	}
	return rs
}

// replay is a Source of recorded arrivals: read once, then spread and scaled.
func replay(name, about, path string, rates []float64, read func(string, io.Reader) ([]Request, error)) Source {
	get := load(path, read)
	return Source{
		Name: name, Unit: "x", Rates: rates,
		About: about + "; a seed moves arrivals inside the gaps of the clock they were recorded with",
		Build: func(rate float64, seed uint64) (*Workload, error) {
			rs, err := get()
			if err != nil {
				return nil, err
			}
			w := &Workload{Name: name, Requests: Spread(rs, quantum, seed)}
			scale(w.Requests, rate)
			return w, w.Check()
		},
	}
}

// scale makes the arrivals rate times as fast. Thinking takes as long as before.
func scale(rs []Request, rate float64) {
	for i := range rs {
		rs[i].Arrival = time.Duration(float64(rs[i].Arrival) / rate)
	}
}
