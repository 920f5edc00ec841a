package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/warmroute/router/internal/ports"
)

// peer is a router and how it is started.
type peer struct {
	name    string
	version string
	broken  error // why it cannot be started, nil if it can
	// command returns the arguments, the first one the program, and the additions
	// to its environment. Files that it needs go into dir.
	command func(addr string, engines []string, dir string) (argv, env []string, err error)
	// ready is the path that answers 200, with a body that contains this, once
	// all engines are known.
	ready, says string
}

// routers returns all measured routers. The peers log only warnings, and their
// listeners are on loopback. Everything else has its default, except the
// thresholds of those named for them.
func routers(e *environment, dir string) []peer {
	ours := func(strategy string) peer {
		return peer{name: "warmroute " + strategy, version: "this tree", ready: "/healthz",
			command: func(addr string, engines []string, _ string) ([]string, []string, error) {
				argv := []string{filepath.Join(dir, "warmroute"), "-listen", addr, "-strategy", strategy, "-drain-delay", "0s",
					"-grace", "1s"}
				for _, u := range engines {
					argv = append(argv, "-target", u)
				}
				return argv, nil, nil
			}}
	}
	// The defaults of package cacheaware in the words of the two routers.
	thresholds := []string{"--cache-threshold", "0.5", "--balance-abs-threshold", "2", "--balance-rel-threshold", "1.5"}
	python := func(name, wheel string, module ...string) func(more ...string) peer {
		return func(more ...string) peer {
			p := peer{name: name, version: e.versions[wheel], broken: e.missing[wheel], ready: "/readiness",
				says: fmt.Sprintf(`"healthy_workers":%d`, engineCount)}
			if len(more) > 0 && more[0] == thresholds[0] {
				p.name += ", our thresholds"
			}
			p.command = func(addr string, engines []string, _ string) ([]string, []string, error) {
				host, port, err := net.SplitHostPort(addr)
				if err != nil {
					return nil, nil, err
				}
				free, err := ports.Free()
				if err != nil {
					return nil, nil, err
				}
				_, metrics, err := net.SplitHostPort(free)
				if err != nil {
					return nil, nil, err
				}
				argv := append([]string{filepath.Join(e.bin, "python"), "-m"}, module...)
				argv = append(argv, "--host", host, "--port", port, "--policy", "cache_aware",
					"--prometheus-host", host, "--prometheus-port", metrics, "--log-level", "warn")
				argv = append(argv, more...)
				return append(append(argv, "--worker-urls"), engines...), nil, nil
			}
			return p
		}
	}
	// Both wheels bring a program smg; the modules are each one's own.
	sglang := python("sglang-router", "sglang-router", "sglang_router.launch_router")
	smg := python("smg", "smg", "smg.launch_router")
	// Otherwise it may look for the model's tokenizer outside.
	const offline = "--disable-tokenizer-autoload"
	rolter := func(strategy string) peer {
		return peer{name: "rolter " + strategy, version: e.versions["rolter"], broken: e.missing["rolter"], ready: "/healthz",
			command: func(addr string, engines []string, dir string) ([]string, []string, error) {
				config, err := rolterConfig(addr, strategy, engines)
				if err != nil {
					return nil, nil, err
				}
				path := filepath.Join(dir, "rolter.toml")
				if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
					return nil, nil, err
				}
				return []string{filepath.Join(e.bin, "rolter"), "gateway", "--config", path}, []string{"RUST_LOG=warn"}, nil
			}}
	}
	return []peer{
		ours("cache_aware"), ours("least_work"),
		sglang(), sglang(thresholds...),
		smg(offline), smg(append(thresholds, offline)...),
		rolter("cache_aware"), rolter("pipeline"),
		{name: "plain reverse proxy", version: "net/http", ready: "/healthz",
			command: func(addr string, engines []string, _ string) ([]string, []string, error) {
				return append([]string{filepath.Join(dir, "budget"), "-serve-proxy", addr}, engines...), nil, nil
			}},
	}
}

// rolterConfig returns a configuration without keys, prices or limits.
func rolterConfig(addr, strategy string, engines []string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[server]\nhost = %q\nport = %s\n", host, port)
	for i, u := range engines {
		fmt.Fprintf(&b, "[[providers]]\nname = \"engine-%d\"\nkind = \"openai_compatible\"\napi_base = %q\n", i, u)
	}
	fmt.Fprintf(&b, "[[routes]]\nmodel = %q\nstrategy = %q\n", model, strategy)
	for i := range engines {
		fmt.Fprintf(&b, "[[routes.targets]]\nprovider = \"engine-%d\"\n", i)
	}
	return b.String(), nil
}
