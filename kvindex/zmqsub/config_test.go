package zmqsub

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
)

func TestNewNamesTheField(t *testing.T) {
	d := newDiary(t)
	ok := Config{Endpoint: "tcp://10.0.0.1:5557", Targets: []Target{{ID: "a"}}, Index: d}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Endpoint = "" }, "Endpoint"},
		{func(c *Config) { c.Endpoint = "ipc:///tmp/x" }, "Endpoint"},
		{func(c *Config) { c.Endpoint = "tcp://*:5557" }, "Endpoint"},
		{func(c *Config) { c.Endpoint = "tcp://169.254.169.254:80" }, "Endpoint"},
		{func(c *Config) { c.Endpoint = "tcp://2852039166:80" }, "Endpoint"},
		{func(c *Config) { c.Endpoint = "tcp://x:0" }, "Endpoint"},
		{func(c *Config) { c.Targets = nil }, "Targets"},
		{func(c *Config) { c.Targets = []Target{{ID: "a"}, {ID: "b"}} }, "Targets[1].Topic"},
		{func(c *Config) { c.Targets = []Target{{ID: "a", Topic: "x"}, {ID: "a"}} }, "Targets[1].ID"},
		{func(c *Config) { c.Targets = []Target{{ID: "a", Replay: "tcp://[fe80::1]:5558"}} }, "Targets[0].Replay"},
		{func(c *Config) { c.Targets = []Target{{ID: "a", Replay: "tcp://user:secret@x:1"}} }, "Targets[0].Replay"},
		{func(c *Config) { c.Targets = []Target{{ID: "a", Ranks: []string{""}}} }, "Targets[0].Ranks"},
		{func(c *Config) { c.Targets = []Target{{ID: "a", Ranks: []string{"r", "r"}}} }, "Targets[0].Ranks[1]"},
		{func(c *Config) { c.Index = nil }, "Index"},
		{func(c *Config) { c.Queue = -1 }, "Queue"},
		{func(c *Config) { c.MinBackoff = time.Hour; c.MaxBackoff = time.Second }, "MaxBackoff"},
		{func(c *Config) { c.ReplayQuiet = -1 }, "ReplayQuiet"},
		{func(c *Config) { c.Egress.AllowHosts = []string{"*"} }, "Egress"},
	} {
		cfg := ok
		c.change(&cfg)
		_, err := New(cfg)
		var bad *router.ConfigError
		if !errors.As(err, &bad) || bad.Field != c.want || !strings.HasPrefix(err.Error(), "zmqsub: "+c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	if _, err := New(ok); err != nil {
		t.Error(err)
	}
	all := Config{Bind: true, Endpoint: "tcp://x@*:1", MinBackoff: -1, QueueBytes: -1}
	_, err := New(all)
	for _, field := range []string{"Endpoint", "Index", "Targets", "MinBackoff", "QueueBytes"} {
		if err == nil || !strings.Contains(err.Error(), "zmqsub: "+field) {
			t.Errorf("%s is missing in %v", field, err)
		}
	}
}

// TestSecretsStayOut: no error quotes the password of an endpoint.
func TestSecretsStayOut(t *testing.T) {
	_, err := New(Config{Endpoint: "tcp://user:secret@x:1", Targets: []Target{{ID: "a", Replay: "tcp://user:secret@x:1"}}})
	for e := range errorsOf(err) {
		var bad *router.ConfigError
		if strings.Contains(e.Error(), "secret") || errors.As(e, &bad) &&
			strings.Contains(reflect.ValueOf(bad.Value).String(), "secret") {
			t.Errorf("%v", e)
		}
	}
}

// errorsOf yields the errors that are joined in err.
func errorsOf(err error) func(func(error) bool) {
	return func(yield func(error) bool) {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			yield(err)
			return
		}
		for _, e := range joined.Unwrap() {
			if !yield(e) {
				return
			}
		}
	}
}

// TestWithDefaults: every number of the zero Config has a default, given values
// stay, and a second time changes nothing.
func TestWithDefaults(t *testing.T) {
	v := reflect.ValueOf(Config{}.WithDefaults())
	for i := range v.NumField() {
		if v.Field(i).CanInt() && v.Field(i).Int() <= 0 {
			t.Errorf("%s has no default", v.Type().Field(i).Name)
		}
	}
	own := Config{StaleAfter: -1, Heartbeat: -1, MinBackoff: time.Minute, Queue: 3}
	got := own.WithDefaults()
	if got.StaleAfter != -1 || got.Heartbeat != -1 || got.MinBackoff != time.Minute || got.MaxBackoff != time.Minute ||
		got.Queue != 3 {
		t.Errorf("%+v", got)
	}
	if !reflect.DeepEqual(got.WithDefaults(), got) {
		t.Errorf("a second time: %+v", got.WithDefaults())
	}
	if k := (kvindex.Config{}).WithDefaults(); k.MaxBlocks != 1_000_000 || k.MaxOrphans != 65_536 {
		t.Errorf("kvindex: %+v", k)
	}
}
