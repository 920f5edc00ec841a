package tokenize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/warmroute/router/internal/jsonscan"
)

const (
	// idBytes is the most that an id takes in an answer, its comma and white space included.
	idBytes = 16
	// answerBytes is for the rest of an answer, and for the ids that a chat template adds of its own.
	answerBytes = 64<<10 + idBytes*templateIDs
	// templateIDs is how many of these there may be in an answer of an engine that is not at fault.
	templateIDs = 4096
)

// errTemplate says that an answer has more ids than the body has bytes, though no more than a chat template may have
// added: the ids are not believed, and the engine is not blamed.
var errTemplate = fmt.Errorf("%w: more ids than the request has bytes", ErrFailed)

// read reads the answer to a request of n bytes: vLLM's has max_model_len and token_strs too. Its count has to be that
// of its ids. No text has fewer bytes than tokens, so more ids than n are not believed. It ends with ctx.
func read(ctx context.Context, b []byte, n int) ([]uint32, error) {
	s := jsonscan.Scanner{B: b}
	if s.Peek() != '{' {
		return nil, errors.New("the answer is not understood")
	}
	var ids []uint32
	count := -1
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		switch string(k) {
		case "count":
			count = -1
			if c := s.Peek(); c < '0' || c > '9' {
				s.Skip()
			} else if v, ok := jsonscan.Uint32(s.Scalar(c)); ok {
				count = int(min(v, math.MaxInt32))
			}
		case "tokens":
			var err error
			if ids, err = readIDs(ctx, &s, n); err != nil {
				return nil, err
			}
		default:
			s.Skip()
		}
	}
	switch s.End(); {
	case s.Fault != 0:
		return nil, errors.New("the answer is not understood")
	case len(ids) == 0:
		return nil, errors.New("the answer has no token ids")
	case count != len(ids):
		return nil, errors.New("the answer's count is not that of its ids")
	case len(ids) > n:
		return nil, errTemplate
	}
	return ids, nil
}

// readIDs reads an array of ids, no more than a template may add to n.
func readIDs(ctx context.Context, s *jsonscan.Scanner, n int) ([]uint32, error) {
	if s.Peek() != '[' {
		return nil, errors.New("the answer has no token ids")
	}
	ids := make([]uint32, 0, min(n, len(s.B)/2))
	for ok := s.FirstElem(); ok; ok = s.NextElem() {
		c := s.Peek()
		if c < '0' || c > '9' {
			return nil, errors.New("the answer's tokens are no ids")
		}
		id, ok := jsonscan.Uint32(s.Scalar(c))
		switch {
		case !ok:
			return nil, errors.New("the answer's tokens are no ids")
		case len(ids) == n+templateIDs:
			return nil, errors.New("the answer has many more ids than the request has bytes")
		case len(ids)%(1<<16) == 1<<16-1 && ctx.Err() != nil:
			return nil, ctx.Err()
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// names reports whether a 404 is about the model: a missing route's has no error
// object but FastAPI's {"detail": "Not Found"}, or one that says the same.
func names(b []byte) bool {
	var v struct {
		Error   *struct{ Message string }
		Object  string
		Message string
	}
	if json.Unmarshal(b, &v) != nil {
		return false
	}
	if v.Error != nil {
		return v.Error.Message != "Not Found"
	}
	return v.Object == "error"
}
