package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

func python(name string) client {
	return client{
		name: name + " (Python)",
		install: func(ctx context.Context, dir string) error {
			if err := have("python3"); err != nil {
				return err
			}
			err := once(ctx, dir, "python.done", []string{"python3", "-m", "venv", "venv"},
				[]string{filepath.Join("venv", "bin", "pip"), "install", "--quiet", "openai", "anthropic", "langchain-openai",
					"litellm", "httpx"})
			if err != nil {
				return err
			}
			return script(dir, "client.py", "client.py")
		},
		command: func(dir string) []string {
			return []string{filepath.Join(dir, "venv", "bin", "python"), "client.py", name}
		},
		silent: map[string]string{
			"openai": "base_url; it has no telemetry", "anthropic": "base_url; it has no telemetry",
			"langchain": "base_url; LANGCHAIN_TRACING_V2 and LANGSMITH_TRACING are false",
			"litellm":   "api_base; telemetry is off, and LITELLM_LOCAL_MODEL_COST_MAP keeps it from fetching prices",
		}[name],
	}
}

func node(name string) client {
	return client{
		name: name + " (Node)",
		install: func(ctx context.Context, dir string) error {
			if err := have("node", "npm"); err != nil {
				return err
			}
			if err := once(ctx, dir, "node.done", []string{"npm", "install", "--no-fund", "--no-audit", "--prefix", ".",
				"openai", "@anthropic-ai/sdk", "ai", "@ai-sdk/openai-compatible"}); err != nil {
				return err
			}
			return script(dir, "client.mjs", "client.mjs")
		},
		command: func(string) []string { return []string{"node", "client.mjs", name} },
		silent: map[string]string{"openai": "baseURL; it has no telemetry", "anthropic": "baseURL; it has no telemetry",
			"ai": "baseURL; telemetry is off unless a call asks for it"}[name],
	}
}

func golang(name string) client {
	return client{
		name: name,
		install: func(ctx context.Context, dir string) error {
			sub := filepath.Join(dir, "gosdk")
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
			if err := script(sub, "openaigo.go.txt", "main.go"); err != nil {
				return err
			}
			return once(ctx, sub, "go.done", []string{"sh", "-c",
				"rm -f go.mod go.sum && go mod init clients && go mod tidy && go build -o client ."})
		},
		command: func(dir string) []string { return []string{filepath.Join(dir, "gosdk", "client"), name} },
		silent:  "BaseURL; it has no telemetry",
	}
}

var clients = []client{
	python("openai"), python("anthropic"), python("langchain"), python("litellm"),
	node("openai"), node("anthropic"), node("ai"),
	golang("openai-go"), golang("go-openai"),
	{
		name: "curl",
		install: func(_ context.Context, dir string) error {
			if err := have("curl", "sh", "gzip"); err != nil {
				return err
			}
			return script(dir, "curl.sh", "curl.sh")
		},
		command: func(string) []string { return []string{"sh", "curl.sh"} },
		silent:  "its address",
	},
	{
		name: "fetch of Chromium",
		install: func(_ context.Context, dir string) error {
			if browser() == "" {
				return have("chromium")
			}
			return script(dir, "browser.sh", "browser.sh")
		},
		command: func(string) []string { return []string{"sh", "browser.sh", browser()} },
		silent:  "--disable-background-networking and an empty profile",
	},
}

func browser() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	return ""
}
