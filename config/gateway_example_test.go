package config_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
)

const two = `
[[providers]]
name = "vllm-1"
api_base = "http://vllm-1:8000"
[[providers]]
name = "vllm-2"
api_base = "http://vllm-2:8000"
[[routes]]
model = "llama"
strategy = "cache_aware"
targets = [{ provider = "vllm-1" }, { provider = "vllm-2" }]
`

// From a file to a running gateway, which follows the file from then on. What was
// learned about the targets that stay is kept.
func ExampleGateway_Watch() {
	dir, err := os.MkdirTemp("", "warmroute")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "router.toml")
	if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
		panic(err)
	}

	reloaded := make(chan error, 1)
	o := config.Options{Reloaded: func(_ *file.File, err error) { reloaded <- err }}
	f, err := config.Load(path, o)
	if err != nil {
		panic(err)
	}
	g, err := config.Build(f, o)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- g.Run(ctx) }()
	go func() { ended <- g.Watch(ctx, path, 5*time.Millisecond) }()

	m, _ := g.Route("llama")
	l, err := m.Router.Assign(ctx, m.Prompt(router.Prompt{Text: "You are brief. Hello"}), "vllm-2")
	if err != nil {
		panic(err)
	}
	l.Done(router.Outcome{Status: 200})

	// Another alias and a weight; the targets stay. A rename puts it there at once.
	changed := two + "aliases = [\"gpt-4o\"]\n"
	if err := os.WriteFile(path+".new", []byte(changed), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		panic(err)
	}
	fmt.Println("reloaded:", <-reloaded)

	m, ok := g.Route("gpt-4o")
	fmt.Println(ok)
	c, err := m.Router.Explain(ctx, m.Prompt(router.Prompt{Text: "You are brief. Hello again"}))
	if err != nil {
		panic(err)
	}
	fmt.Println(c[0].Target.ID, c[0].Cached, c[0].Reason)
	for _, m := range g.Models() {
		fmt.Println(m.ID, m.Kind)
	}
	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// reloaded: <nil>
	// true
	// vllm-2 20 warm
	// llama model
	// gpt-4o alias
	// context canceled context canceled
}

// A file that cannot be read changes nothing. On SIGHUP a gateway calls ReloadFile.
func ExampleGateway_ReloadFile() {
	f, err := config.Parse([]byte(two), config.Options{})
	if err != nil {
		panic(err)
	}
	g, err := config.Build(f, config.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(errors.Is(g.ReloadFile("gone.toml"), fs.ErrNotExist))
	f, err = config.Parse([]byte(two+"[health]\ncool_after = 1\n"), config.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(g.Reload(f), g.File().Health.CoolAfter)
	fmt.Println(len(g.File().Routes), g.View().Snapshot()[0].Target.ID)
	// Output:
	// true
	// <nil> 1
	// 1 vllm-1
}

// The parts of a Gateway that a page for operators shows.
func ExampleGateway_View() {
	f, err := config.Parse([]byte(two), config.Options{})
	if err != nil {
		panic(err)
	}
	g, err := config.Build(f, config.Options{})
	if err != nil {
		panic(err)
	}
	for _, s := range g.View().Snapshot() {
		fmt.Println(s.Target.ID, s.Target.State)
	}
	s, ok := g.Strategy("llama").(interface{ Forget(id string) })
	fmt.Println(s != nil, ok)
	fmt.Println(g.Index() == nil, len(g.LMCache().Snapshot())) // no kv_events, no lmcache
	// Output:
	// vllm-1 ready
	// vllm-2 ready
	// true true
	// true 0
}
