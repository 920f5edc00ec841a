package prompt

import "strings"

// tokenIDsHeader carries the engine's own ids of the prompt's tokens.
const tokenIDsHeader = "x-rolter-vllm-token-ids"

// ParseTokenIDs reads the value of a token-id header: decimal numbers that fit
// 32 bits, separated by commas that may have spaces and tabs around them.
// Anything else, also an empty value, is an *Error.
func ParseTokenIDs(header string) ([]uint32, error) {
	ids, err := parseTokenIDs(header)
	return ids, asError(err)
}

func parseTokenIDs(s string) ([]uint32, *Error) {
	ids := make([]uint32, 0, strings.Count(s, ",")+1)
	for i := 0; ; i++ {
		if len(ids) > 0 {
			i = skipBlanks(s, i)
		}
		lo := i
		for i < len(s) && s[i]-'0' <= 9 {
			i++
		}
		id, ok := parseID(s[lo:i])
		if !ok {
			return nil, &Error{Kind: BadTokenIDs, Field: tokenIDsHeader, Offset: lo}
		}
		ids = append(ids, id)
		if i == len(s) {
			return ids, nil
		}
		if i = skipBlanks(s, i); i == len(s) || s[i] != ',' {
			return nil, &Error{Kind: BadTokenIDs, Field: tokenIDsHeader, Offset: i}
		}
	}
}

func skipBlanks(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i
}

// parseID reads a decimal number that fits 32 bits.
func parseID[T string | []byte](s T) (uint32, bool) {
	if len(s) == 0 {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		if n = n*10 + uint64(c); n > 1<<32-1 {
			return 0, false
		}
	}
	return uint32(n), true
}
