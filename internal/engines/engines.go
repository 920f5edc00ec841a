// Package engines has what is read of each engine and what is ignored, as data: docs/engines.md is
// made of it, and tests hold it against the engines' sources and recordings.
package engines

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed facts.txt
var facts string

// Fact is a group of names of one engine that are treated alike.
type Fact struct {
	Engine string
	Area   string // events, metrics, tokenize, requests, speculation, sleep or offload
	Read   bool
	Names  []string // one that ends in * stands for all that begin so
	Text   string   // what it is read for, or why it is not
}

// Engine is an engine and its facts, in the order of the page.
type Engine struct {
	Name, Sources string
	Facts         []Fact
}

const intro = "# Engines\n\n" +
	"What is read of each engine and version, what is ignored, and why. The page is made of `internal/engines/facts.txt`\n" +
	"by `go test ./internal/engines -update`; a test fails if a member of an engine's events, requests or metrics pages\n" +
	"is in neither list.\n"

// free are the areas with text in place of names.
var free = map[string]bool{"speculation": true, "sleep": true, "offload": true}

// All returns the engines, as facts.txt has them.
func All() ([]Engine, error) {
	var all []Engine
	n := 0
	for line := range strings.Lines(facts) {
		n++
		line = strings.TrimSpace(line)
		name, isEngine := strings.CutPrefix(line, "= ")
		sources, isSources := strings.CutPrefix(line, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case isEngine:
			all = append(all, Engine{Name: name})
			continue
		case len(all) == 0:
			return nil, fmt.Errorf("facts.txt:%d: no engine before it", n)
		}
		e := &all[len(all)-1]
		if isSources {
			e.Sources = sources
			continue
		}
		parts := strings.Split(line, " | ")
		if len(parts) != 4 || parts[1] != "+" && parts[1] != "-" {
			return nil, fmt.Errorf("facts.txt:%d: not four parts", n)
		}
		f := Fact{Engine: e.Name, Area: parts[0], Read: parts[1] == "+", Names: strings.Fields(parts[2]), Text: parts[3]}
		if free[f.Area] || e.Name == "Any engine" {
			f.Names = []string{parts[2]}
		}
		e.Facts = append(e.Facts, f)
	}
	return all, nil
}

// Covers reports whether the fact speaks of a name.
func (f *Fact) Covers(name string) bool {
	for _, n := range f.Names {
		if stem, ok := strings.CutSuffix(n, "*"); ok && strings.HasPrefix(name, stem) || n == name {
			return true
		}
	}
	return false
}

// Page returns docs/engines.md.
func Page() (string, error) {
	all, err := All()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(intro)
	for _, e := range all {
		fmt.Fprintf(&b, "\n## %s\n\n", e.Name)
		if e.Sources != "" {
			fmt.Fprintf(&b, "%s\n\n", e.Sources)
		}
		b.WriteString("| | | names | what for, or why not |\n|---|---|---|---|\n")
		for _, f := range e.Facts {
			use := "ignored"
			if f.Read {
				use = "read"
			}
			names := strings.Join(f.Names, ", ")
			if !free[f.Area] && e.Name != "Any engine" {
				names = "`" + strings.Join(f.Names, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Area, use, names, f.Text)
		}
	}
	return b.String(), nil
}
