package prompt_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/warmroute/router/prompt"
)

// TestTokenIDsHeader: both names are read, the first of them has precedence unless it
// is empty, and an error names the one that was read.
func TestTokenIDsHeader(t *testing.T) {
	const body = `{"model":"m","prompt":"hi"}`
	for _, c := range []struct {
		name  string
		pairs []string
		want  []uint32
		field string // of an error
	}{
		{"its name", []string{prompt.TokenIDsHeader, "1,2"}, []uint32{1, 2}, ""},
		{"the alias", []string{prompt.TokenIDsHeaderAlias, "3"}, []uint32{3}, ""},
		{"both", []string{prompt.TokenIDsHeaderAlias, "3", prompt.TokenIDsHeader, "4"}, []uint32{4}, ""},
		{"empty", []string{prompt.TokenIDsHeaderAlias, "3", prompt.TokenIDsHeader, ""}, []uint32{3}, ""},
		{"wrong", []string{prompt.TokenIDsHeader, "x", prompt.TokenIDsHeaderAlias, "3"}, nil, prompt.TokenIDsHeader},
		{"wrong alias", []string{prompt.TokenIDsHeaderAlias, "1;2"}, nil, prompt.TokenIDsHeaderAlias},
	} {
		p, err := prompt.FromRequest("/v1/completions", headers(c.pairs...), []byte(body))
		if !slices.Equal(p.Tokens, c.want) {
			t.Errorf("%s: %v instead of %v", c.name, p.Tokens, c.want)
		}
		var bad *prompt.Error
		if errors.As(err, &bad) != (c.field != "") || bad != nil && bad.Field != c.field {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
