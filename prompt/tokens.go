package prompt

import (
	"bytes"
	"strings"

	"github.com/warmroute/router/internal/jsonscan"
)

// TokenIDsHeader is the request header with the engine's own ids of the prompt's
// tokens, as ParseTokenIDs reads them. TokenIDsHeaderAlias is its earlier name, which
// is read if TokenIDsHeader is absent or empty.
const (
	TokenIDsHeader      = "x-warmroute-token-ids"
	TokenIDsHeaderAlias = "x-rolter-vllm-token-ids"
)

// ParseTokenIDs reads the value of a token-id header: decimal numbers that fit
// 32 bits, separated by commas that may have spaces and tabs around them.
// Anything else, also an empty value, is an *Error of kind ErrBadTokenIDs.
func ParseTokenIDs(header string) ([]uint32, error) {
	ids, err := parseTokenIDs(TokenIDsHeader, header)
	return ids, asError(err)
}

// parseTokenIDs reads the value s of the header field, which errors name.
func parseTokenIDs(field, s string) ([]uint32, *Error) {
	ids := make([]uint32, 0, strings.Count(s, ",")+1)
	for i := 0; ; i++ {
		if len(ids) > 0 {
			i = skipBlanks(s, i)
		}
		lo := i
		for i < len(s) && s[i]-'0' <= 9 {
			i++
		}
		id, ok := jsonscan.Uint32(s[lo:i])
		if !ok {
			return nil, &Error{Kind: ErrBadTokenIDs, Field: field, Offset: lo}
		}
		ids = append(ids, id)
		if i == len(s) {
			return ids, nil
		}
		if i = skipBlanks(s, i); i == len(s) || s[i] != ',' {
			return nil, &Error{Kind: ErrBadTokenIDs, Field: field, Offset: i}
		}
	}
}

func skipBlanks(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i
}

var comma = []byte{','}

func (p *parse) tokenArray() {
	if p.FirstElem() {
		p.tokenElems()
	}
}

// tokenElems reads the ids of an array from its first element, which is next,
// to its end. One that is no id makes them all unknown.
func (p *parse) tokenElems() {
	rest := p.B[p.I:]
	if end := bytes.IndexByte(rest, ']'); end >= 0 {
		rest = rest[:end]
	}
	ids := make([]uint32, 0, bytes.Count(rest, comma)+1)
	good := true
	for ok := true; ok; ok = p.NextElem() {
		c := p.Peek()
		if c < '0' || c > '9' {
			good = false
			p.wrong()
			continue
		}
		at := p.I
		id, ok := jsonscan.Uint32(p.Scalar(c))
		if !ok && p.Fault == 0 {
			good = false
			if p.soft == nil {
				p.soft = &Error{Kind: ErrType, Field: p.where(), Offset: at}
			}
		}
		ids = append(ids, id)
	}
	if good && p.Fault == 0 {
		p.tokens = ids
	}
}
