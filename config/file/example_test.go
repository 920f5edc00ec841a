package file_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/strategy/cacheaware"
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

// The strategies that a file can name. Options.Strategies adds one's own.
func ExampleStrategies() {
	var names []string
	for name := range file.Strategies() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Println(n)
	}
	// Output:
	// cache_aware
	// consistent_hash
	// least_load
	// least_work
	// lmcache_aware
	// pipeline
	// power_of_two
	// precise_cache_aware
	// random
	// round_robin
}

// A file with every default is itself a file.
func ExampleFile_Effective() {
	f, err := file.Parse("router.toml", []byte(two), file.Options{})
	if err != nil {
		panic(err)
	}
	all := f.Effective()
	_, table, _ := strings.Cut(all, "[routes.cache_aware]\n")
	fmt.Print(table)
	again, err := file.Parse("", []byte(all), file.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(again.Effective() == all)
	fmt.Println(f.Policy().CheckURL("http://169.254.169.254/latest") != nil)
	// Output:
	// threshold = 0.5
	// overload_slack = 2.0
	// overload_factor = 1.5
	// held_share = 0.1
	// max_nodes = 1000000
	// max_bytes = 536870912
	// true
	// true
}

func ExampleParse() {
	_, err := file.Parse("router.toml", []byte(`
[[providers]]
name = "vllm-1"
api_base = "http://169.254.169.254"

[[routes]]
model = "llama"
strategy = "cash_aware"
[[routes.targets]]
provider = "vlm-1"
wieght = 0
`), file.Options{})
	var bad *file.Error
	if !errors.As(err, &bad) {
		panic(err)
	}
	for _, p := range bad.Problems {
		fmt.Println(p)
	}
	// Output:
	// 4:12: providers[0].api_base: http://169.254.169.254 is denied: 169.254.169.254 is cloud metadata or link-local (169.254.0.0/16); AllowLinkLocal (block_link_local = false) allows all of these, AllowHosts (allow_hosts) this host alone
	// 8:12: routes[0].strategy: "cash_aware" is not known; did you mean "cache_aware"?
	// 10:12: routes[0].targets[0].provider: there is no provider "vlm-1"; did you mean "vllm-1"?
	// 11:1: routes[0].targets[0].wieght: unknown key; did you mean "weight"?
}

// A program that writes files can mend what it got wrong.
func ExampleProblem() {
	_, err := file.Parse("router.toml", []byte(two+"[routes.cache_aware]\nthreshold = 1.5\n"), file.Options{})
	var p *file.Problem
	if errors.As(err, &p) {
		fmt.Println(p.File, p.Line, p.Column)
		fmt.Println(p.Key, p.Value)
		fmt.Println(p.Allowed)
	}
	var c *router.ConfigError
	if errors.As(err, &c) {
		fmt.Println(c.Field)
	}
	// Output:
	// router.toml 13 13
	// routes[0].cache_aware.threshold 1.5
	// above 0 and at most 1
	// Threshold
}

// Two files that differ in nothing but comments and order.
func ExampleSame() {
	dir, err := os.MkdirTemp("", "warmroute")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "router.toml")
	if err := os.WriteFile(path, []byte("# two engines\n"+two), 0o600); err != nil {
		panic(err)
	}
	a, err := file.Load(path, file.Options{})
	if err != nil {
		panic(err)
	}
	data, err := file.Read(path)
	if err != nil {
		panic(err)
	}
	b, err := file.Parse(path, append(data, "[health]\ncool_after = 3\n"...), file.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(file.Same(a.Health, b.Health),
		file.Same(a.Routes[0].Settings["cache_aware"], b.Routes[0].Settings["cache_aware"]))
	_, err = file.Read(dir)
	fmt.Println(err != nil)
	// Output:
	// true true
	// true
}

// The strategy of a route, made by its settings in the file.
func ExampleRoute_Made() {
	f, err := file.Parse("router.toml", []byte(two), file.Options{})
	if err != nil {
		panic(err)
	}
	s, cfg := f.Routes[0].Made()
	c, ok := cfg.(*cacheaware.Config) // a copy
	fmt.Println(ok, c.Threshold, s.ReadsIndex)
	made, err := s.New(c)
	fmt.Printf("%T %v\n", made, err)
	// Output:
	// true 0.5 false
	// *cacheaware.Strategy <nil>
}

// A host reads the settings of the line in which requests wait.
func ExampleQueue() {
	f, err := file.Parse("router.toml", []byte("[queue]\nenabled = true\nrequests = 16\n"+two), file.Options{})
	if err != nil {
		panic(err)
	}
	c := f.Queue.Config()
	fmt.Println(c.Requests, c.MaxWaiting)
	// Output: 16 1024
}

// A host connects to the bus that the file names.
func ExampleShare() {
	env := func(string) (string, bool) { return "the fleet's own secret", true }
	f, err := file.Parse("router.toml", []byte(`
[share]
bus = ["nats://nats-1:4222", "nats://nats-2:4222"]
secret_env = "SHARE_SECRET"
`+two), file.Options{LookupEnv: env, Share: true})
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Share.Enabled(), f.Share.Kind(), f.Share.Config().Interval)
	// Output: true nats 5ms
}

// A host's own client trusts the engines that the file's [tls] says.
func ExampleTLS() {
	_, err := (&file.TLS{CAFile: "none.pem"}).Config()
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output: true
}
