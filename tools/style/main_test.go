package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const contributing = "# Contributing\n\n```words\nwhose | of which\nof what | of the\nwhere not | if not\n```\n"

func TestStyle(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := write("CONTRIBUTING.md", contributing)
	long := strings.Repeat("x", 120)
	goFile := write("a.go", `// Package a is one Whose name is short.
package a

//go:generate whose
// a copy of
// what it was

import "errors"

var whose = "whose"

// `+"`whose` and whoseever"+`
var err = errors.New("the key whose value is missing")

var x = "`+long+`"
var y, z = "`+strings.Repeat("é", 50)+`", "`+strings.Repeat("é", 50)+`" // not
var u, v = "`+strings.Repeat("é", 50)+`", "`+strings.Repeat("é", 49)+`"
`)
	page := write("b.md", "where\nnot\n\n    whose\n\n`whose` [x](whose) whose\n```sh\nwhose\n```\nWhose.\n")
	var out strings.Builder
	n, err := run(&out, list, []string{goFile, page, list})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a.go:1: \"whose\": write of which",
		"a.go:5: \"of what\": write of the",
		"a.go:13: \"whose\": write of which",
		"a.go:16: 124 characters, want at most 120",
		"b.md:1: \"where not\": write if not",
		"b.md:6: \"whose\": write of which",
		"b.md:10: \"whose\": write of which",
	}
	got := strings.ReplaceAll(out.String(), dir+string(filepath.Separator), "")
	if got != strings.Join(want, "\n")+"\n" || n != len(want) {
		t.Errorf("%d findings:\n%s", n, got)
	}
	if _, err := run(&out, page, []string{goFile}); err == nil {
		t.Error("a page without a list is taken")
	}
}
