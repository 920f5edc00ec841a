package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadme holds the code in the README to the program that is compiled here.
func TestReadme(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(readme), "## In your gateway\n")
	if !ok {
		t.Fatal("README.md has no such section any more")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	parts := 0
	for {
		_, code, ok := strings.Cut(section, "```go\n")
		if !ok {
			break
		}
		code, section, _ = strings.Cut(code, "```")
		if !strings.Contains(string(program), strings.TrimSpace(code)) {
			t.Errorf("this part of README.md is not in examples/minimal/main.go:\n%s", code)
		}
		parts++
	}
	if parts != 2 {
		t.Errorf("%d parts of the program are in README.md, want 2", parts)
	}
}
