package configerr_test

import (
	"errors"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/trie"
)

func TestList(t *testing.T) {
	bad := configerr.List{Package: "pkg"}
	bad.Check(true, "Good", 1, "anything")
	bad.Add(nil)
	if err := bad.Err(); err != nil {
		t.Fatalf("nothing is wrong, and Err returns %v", err)
	}
	bad.Check(false, "Share", 2.5, "at most 1")
	_, err := trie.New(trie.Config{MaxNodes: -1, MaxBytes: -2})
	bad.Add(err)
	plain := errors.New("no such thing")
	bad.Add(plain)

	got, want := bad.Err(), "pkg: Share is 2.5; it must be at most 1\n"+
		"pkg: MaxNodes is -1; it must be at least 1, or 0 for the default\n"+
		"pkg: MaxBytes is -2; it must be at least 1, or 0 for the default\n"+
		"pkg: no such thing"
	if got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(got, plain) {
		t.Error("an added error is lost")
	}
	var fields []string
	for _, e := range got.(interface{ Unwrap() []error }).Unwrap() {
		var c *router.ConfigError
		if errors.As(e, &c) {
			fields = append(fields, c.Field)
		}
	}
	if len(fields) != 3 || fields[0] != "Share" || fields[1] != "MaxNodes" || fields[2] != "MaxBytes" {
		t.Errorf("fields %q", fields)
	}
}
