package config

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
)

// env is the environment of tests.
func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

// idle is a subscriber that hears nothing.
type idle struct{}

func (idle) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func options() Options {
	return Options{
		LookupEnv: env(map[string]string{"KEY": "sk-1", "TEAM": "blue", "LMC": "lm", "BAD": "a\nb", "EMPTY": ""}),
		Subscribe: func(Subscription) (Runner, error) { return idle{}, nil },
	}
}

func mustParse(t testing.TB, text string, o Options) *file.File {
	t.Helper()
	f, err := Parse([]byte(text), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return f
}

func mustBuild(t testing.TB, text string, o Options) *Gateway {
	t.Helper()
	g, err := Build(mustParse(t, text, o), o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// mustRoute routes one request for a model; the lease is the caller's to end.
func mustRoute(t testing.TB, g *Gateway, model string, p router.Prompt) (*router.Lease, Match) {
	t.Helper()
	m, ok := g.Route(model)
	if !ok {
		t.Fatalf("no route for %q", model)
	}
	l, err := m.Router.Route(t.Context(), m.Prompt(p))
	if err != nil {
		t.Fatalf("%s: %v", model, err)
	}
	return l, m
}

// serve routes, finishes and returns the target's ID.
func serve(t testing.TB, g *Gateway, model string, p router.Prompt) string {
	t.Helper()
	l, _ := mustRoute(t, g, model, p)
	l.Done(router.Outcome{Stage: router.Finished, Status: 200})
	return l.Decision().Target.ID
}

func problems(err error) []file.Problem {
	var e *file.Error
	if errors.As(err, &e) {
		return e.Problems
	}
	return nil
}

func promptOf(text string) router.Prompt { return router.Prompt{Text: text} }

func exampleText(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("router.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
