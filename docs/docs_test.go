package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is one fenced block of a page.
type block struct {
	page string
	line int
	lang string
	mark string // what follows the language: "run", "file=router.toml"
	text string
	// output is the block without a language that follows this one, "" for none.
	output string
}

// pages returns the guide's pages by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.md")
	if err != nil || len(names) < 7 {
		t.Fatalf("%d pages: %v", len(names), err)
	}
	all := map[string]string{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		all[n] = string(b)
	}
	return all
}

// blocks returns the fenced blocks of all pages that are of a language.
func blocks(t *testing.T, lang string) []block {
	t.Helper()
	var all []block
	for name, page := range pages(t) {
		var last *block
		open, n := false, 0
		var b block
		for line := range strings.Lines(page) {
			n++
			fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case !isFence && open:
				b.text += line
			case isFence && !open:
				b = block{page: name, line: n}
				b.lang, b.mark, _ = strings.Cut(fence, " ")
				open = true
			case isFence:
				open = false
				if b.lang == "" && last != nil {
					last.output = b.text
					continue
				}
				all = append(all, b)
				last = &all[len(all)-1]
			}
		}
		if open {
			t.Errorf("%s: a block is not closed", name)
		}
	}
	slices.SortFunc(all, func(a, b block) int {
		if c := strings.Compare(a.page, b.page); c != 0 {
			return c
		}
		return a.line - b.line
	})
	return slices.DeleteFunc(all, func(b block) bool { return lang != "" && b.lang != lang })
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMarks: every block is of a kind that a test looks at.
func TestMarks(t *testing.T) {
	kinds := map[string]int{}
	for _, b := range blocks(t, "") {
		kind, _, _ := strings.Cut(b.mark, "=")
		switch {
		case b.lang == "sh" && slices.Contains([]string{"run", "gateway", "live", "vllm", "sglang", "hand"}, b.mark),
			b.lang == "go" && (kind == "file" || kind == "in"),
			slices.Contains([]string{"toml", "python", "caddyfile"}, b.lang) && kind == "file":
			kinds[b.lang+" "+kind]++
		default:
			t.Errorf("%s:%d: nothing tests a block that is marked %q %q", b.page, b.line, b.lang, b.mark)
		}
	}
	for _, k := range []string{"sh run", "sh gateway", "sh live", "sh vllm", "sh sglang", "go file", "go in",
		"toml file"} {
		if kinds[k] == 0 {
			t.Errorf("no block is marked %q any more", k)
		}
	}
}

// lines are those of s without what indents them.
func lines(s string) string {
	var b strings.Builder
	for l := range strings.Lines(s) {
		b.WriteString(strings.TrimSpace(l) + "\n")
	}
	return b.String()
}

// TestQuotes: what a page quotes of a file, which is compiled or run there, is in it.
func TestQuotes(t *testing.T) {
	for _, b := range blocks(t, "") {
		name, ok := strings.CutPrefix(b.mark, "file=")
		if !ok || b.lang == "toml" {
			continue
		}
		if !strings.Contains("\n"+lines(read(t, name)), "\n"+lines(b.text)) {
			t.Errorf("%s:%d: this is not in %s:\n%s", b.page, b.line, name, b.text)
		}
	}
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	metric = regexp.MustCompile(`warmroute_[a-z_]+`)
	alert  = regexp.MustCompile(`Warmroute[A-Z][A-Za-z]+`)
)

// anchors are those that the headings of a page make.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(page) {
		h := strings.TrimLeft(line, "#")
		if h == line || !strings.HasPrefix(h, " ") {
			continue
		}
		a := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
				return r
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(h)))
		all[a] = true
	}
	return all
}

func TestLinks(t *testing.T) {
	n := 0
	all := pages(t)
	all["../README.md"] = read(t, "README.md")
	for name, page := range all {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				path = filepath.Join(filepath.Dir(name), path)
				if i, err := os.Stat(path); err != nil {
					t.Errorf("%s: %s leads nowhere: %v", name, m[1], err)
					continue
				} else if i.IsDir() {
					continue
				}
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				target = string(b)
			}
			if anchor != "" && !anchors(target)[anchor] {
				t.Errorf("%s: %s: there is no such heading", name, m[1])
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d links were found", n)
	}
	if !strings.Contains(all["../README.md"], "docs/guide.md") {
		t.Error("README.md does not lead to the guide")
	}
}

// TestMetrics: every metric and alert that a page names is there, and every alert
// and no other is explained. A test of contrib/prometheus holds its README and its
// alerts to the exported metrics.
func TestMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metric.FindAllString(read(t, "contrib/prometheus/README.md"), -1) {
		known[m] = true
	}
	alerts := map[string]bool{}
	for l := range strings.Lines(read(t, "contrib/prometheus/alerts.yaml")) {
		if a, ok := strings.CutPrefix(strings.TrimSpace(l), "- alert: "); ok {
			alerts[a] = true
		}
	}
	if len(known) < 40 || len(alerts) < 10 {
		t.Fatalf("only %d metrics and %d alerts are known", len(known), len(alerts))
	}
	explained := map[string]bool{}
	for name, page := range pages(t) {
		for _, m := range metric.FindAllString(page, -1) {
			if !known[m] {
				t.Errorf("%s: there is no metric %s", name, m)
			}
		}
		for _, a := range alert.FindAllString(page, -1) {
			if explained[a] = true; !alerts[a] {
				t.Errorf("%s: there is no alert %s", name, a)
			}
		}
	}
	for a := range alerts {
		if !explained[a] {
			t.Errorf("alert %s is not explained", a)
		}
	}
}

// TestFigures: a number in a table of strategies stands in a row of the same policy
// in the results of the simulator.
func TestFigures(t *testing.T) {
	rows := map[string][]string{}
	for l := range strings.Lines(read(t, "bench/RESULTS.md")) {
		if strings.HasPrefix(l, "|") {
			name := strings.Trim(strings.Split(l, "|")[1], " *")
			rows[name] = append(rows[name], " "+strings.Trim(strings.NewReplacer("*", "", "|", " ").Replace(l), "\n")+" ")
		}
	}
	n := 0
	for name, page := range pages(t) {
		for l := range strings.Lines(page) {
			cells := strings.Split(strings.TrimSpace(l), "|")
			if len(cells) < 4 || len(rows[strings.TrimSpace(cells[1])]) == 0 {
				continue
			}
			policy := strings.TrimSpace(cells[1])
			for _, c := range cells[2 : len(cells)-1] {
				c = strings.TrimSpace(c)
				if strings.Trim(c, "0123456789.") != "" {
					continue
				}
				n++
				if !slices.ContainsFunc(rows[policy], func(r string) bool { return strings.Contains(r, " "+c+" ") }) {
					t.Errorf("%s: %s has no result %s in bench/RESULTS.md", name, policy, c)
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d figures were found", n)
	}
}

func TestLength(t *testing.T) {
	for name, page := range pages(t) {
		if n := strings.Count(page, "\n"); n > 400 {
			t.Errorf("%s has %d lines", name, n)
		}
	}
}
