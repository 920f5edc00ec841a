package router_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warmroute/router"
)

func TestConfigError(t *testing.T) {
	cause := errors.New("not an address")
	for want, e := range map[string]*router.ConfigError{
		"Slack is -1; it must be 0 or more": {Field: "Slack", Value: -1, Allowed: "0 or more"},
		`Mode is "x y"; it must be a word`:  {Field: "Mode", Value: "x y", Allowed: "a word"},
		"Key must be set":                   {Field: "Key", Allowed: "set"},
		"Members[1].URL: not an address":    {Field: "Members[1].URL", Value: "x", Err: cause},
	} {
		err := fmt.Errorf("pkg: %w", errors.Join(errors.New("another"), e))
		var found *router.ConfigError
		if !errors.As(err, &found) || found != e {
			t.Errorf("errors.As does not find %v in %v", e, err)
		}
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if errors.Is(err, cause) != (e.Err != nil) {
			t.Errorf("%v: the cause is lost", e)
		}
	}
}
