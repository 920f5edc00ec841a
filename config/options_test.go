package config

import (
	"context"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/strategy/leastload"
)

// first is a strategy of the caller's own, greeting its Config.
type first struct {
	*leastload.Strategy
	greeting string
}

type greeting struct {
	Greeting string `toml:"greeting"`
}

func (f first) Pick(_ context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	if len(ts) == 0 {
		return router.Decision{}, &router.NoTargetError{}
	}
	return router.Decision{Prompt: p, Target: ts[0], Reason: router.Reason(f.greeting)}, nil
}

func TestOwnStrategy(t *testing.T) {
	o := options()
	o.Strategies = map[string]file.Strategy{"first": {
		Config: func() any { return new(greeting) },
		New: func(cfg any) (router.Strategy, error) {
			least, err := leastload.New(leastload.Config{})
			return first{least, cfg.(*greeting).Greeting}, err
		},
	}, "bare": {New: func(cfg any) (router.Strategy, error) {
		if cfg != nil {
			t.Errorf("bare is given %v", cfg)
		}
		return leastload.New(leastload.Config{})
	}}}
	g := mustBuild(t, fileOf("first", "[routes.first]\ngreeting = \"hi\"\n", "b", "a"), o)
	l, m := mustRoute(t, g, "m", promptOf("x"))
	l.Done(router.Outcome{Stage: router.Finished})
	if d := l.Decision(); d.Target.ID != "b" || d.Reason != "hi" || m.Strategy != "first" {
		t.Errorf("%+v", d)
	}
	if out := g.File().Effective(); !strings.Contains(out, "[routes.first]\ngreeting = 'hi'") {
		t.Error(out)
	}
	mustBuild(t, fileOf("bare", "", "a"), o)
	for _, text := range []string{fileOf("bare", "[routes.bare]\nx = 1\n", "a"), fileOf("frist", "", "a")} {
		if _, err := Parse([]byte(text), o); err == nil || len(problems(err)) != 1 {
			t.Errorf("%v", err)
		}
	}
	for _, name := range []string{"", "targets", "model", "failover"} {
		o.Strategies = map[string]file.Strategy{name: o.Strategies["bare"]}
		if _, err := Parse([]byte(designFile), o); err == nil || !strings.Contains(err.Error(), "Options.Strategies") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := Build(&file.File{}, o); err == nil {
			t.Errorf("%q is no strategy's name", name)
		}
	}
}

// A secret that went away between Parse and Build is an error that names its key.
func TestSecretGone(t *testing.T) {
	f := mustParse(t, routesFile, options())
	o := options()
	o.LookupEnv = env(nil)
	if _, err := Build(f, o); err == nil || !strings.Contains(err.Error(), "providers[0].") {
		t.Errorf("%v", err)
	}
}

// Hooks and the source of chance reach what they are for.
func TestHooks(t *testing.T) {
	o := options()
	var routes, joined []string
	drawn := 0
	o.Trace = func(route string) router.Trace { routes = append(routes, route); return router.Trace{} }
	o.View.Forget = func(id string) { joined = append(joined, id) }
	o.Rand = func() uint64 { drawn++; return 0 }
	g := mustBuild(t, fileOf("random", "", "a", "b"), o)
	serve(t, g, "m", promptOf("x"))
	g.View().Forget("a")
	if len(routes) != 1 || routes[0] != "m" || len(joined) != 1 || drawn == 0 {
		t.Errorf("%v, %v, %d", routes, joined, drawn)
	}
}
