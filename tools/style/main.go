// Command style checks what gofmt and staticcheck do not:
//
//	style [-contributing FILE] FILE...
//
// Go lines have at most 120 characters, if they can be broken, and the words of the list in
// CONTRIBUTING.md (a fenced block "words", each line a word, a bar and its
// replacement) do not appear in comments, error texts and pages. Code is left out:
// fenced blocks and code spans of pages, code in Go files, and directives.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxColumns = 120

func main() {
	contributing := flag.String("contributing", "CONTRIBUTING.md", "`file` with the list of words")
	flag.Parse()
	n, err := run(os.Stdout, *contributing, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "style:", err)
		os.Exit(1)
	}
	if n > 0 {
		fmt.Fprintf(os.Stderr, "style: %d findings\n", n)
		os.Exit(1)
	}
}

// run prints the findings in the files and returns their number.
func run(out io.Writer, contributing string, files []string) (int, error) {
	page, err := os.ReadFile(contributing)
	if err != nil {
		return 0, err
	}
	list, err := words(page)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", contributing, err)
	}
	n := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return n, err
		}
		var found []finding
		switch filepath.Ext(name) {
		case ".go":
			if found, err = checkGo(name, b, list); err != nil {
				return n, err
			}
		case ".md":
			found = list.find(prose(b))
		}
		slices.SortStableFunc(found, func(a, b finding) int { return a.line - b.line })
		for _, f := range found {
			fmt.Fprintf(out, "%s:%d: %s\n", name, f.line, f.text)
		}
		n += len(found)
	}
	return n, nil
}

type finding struct {
	line int
	text string
}

// wordList finds the words of the list, with the replacement of each.
type wordList struct {
	pattern *regexp.Regexp
	instead map[string]string
}

// words reads the list of a page.
func words(page []byte) (*wordList, error) {
	l := &wordList{instead: map[string]string{}}
	_, block, ok := bytes.Cut(page, []byte("\n```words\n"))
	block, _, closed := bytes.Cut(block, []byte("\n```"))
	if !ok || !closed {
		return nil, fmt.Errorf("it has no block of words")
	}
	var all []string
	for line := range strings.Lines(string(block)) {
		word, instead, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok || word == "" {
			return nil, fmt.Errorf("%q is no word with a replacement", line)
		}
		word = strings.ToLower(word)
		l.instead[word] = instead
		all = append(all, strings.ReplaceAll(regexp.QuoteMeta(word), " ", `\s+(?://\s*)?`))
	}
	// The longest first: of two that begin alike it is the one that is meant.
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var err error
	l.pattern, err = regexp.Compile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
	return l, err
}

// find returns the words of the list in a text, by line.
func (l *wordList) find(text string) []finding {
	var found []finding
	for _, m := range l.pattern.FindAllStringIndex(text, -1) {
		word := strings.Join(strings.FieldsFunc(strings.ToLower(text[m[0]:m[1]]), func(r rune) bool {
			return r == ' ' || r == '\n' || r == '\t' || r == '/'
		}), " ")
		found = append(found, finding{
			1 + strings.Count(text[:m[0]], "\n"), fmt.Sprintf("%q: write %s", word, l.instead[word]),
		})
	}
	return found
}

var span = regexp.MustCompile("`[^`\n]*`|\\]\\([^)\n]*\\)|<[^>\n]*>")

// optional is an optional word of a command line in an error text.
var optional = regexp.MustCompile(`\[[a-z]+\]`)

// prose returns a page with its code blanked out: as many lines as before.
func prose(page []byte) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(string(page)) {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if !fence && !fenced && !strings.HasPrefix(line, "    ") {
			b.WriteString(span.ReplaceAllString(line, "`"))
		} else {
			b.WriteByte('\n')
		}
		fenced = fenced != fence
	}
	return b.String()
}

var output = regexp.MustCompile(`(?i)^//\s*(unordered )?output:`)

// indivisible returns the lines of a file that cannot be shorter: those of raw
// strings, of an example's output, and of strings that fill a line by themselves.
func indivisible(fset *token.FileSet, f *ast.File) map[int]bool {
	lines := map[int]bool{}
	add := func(from, to token.Pos) {
		for n := fset.Position(from).Line; n <= fset.Position(to).Line; n++ {
			lines[n] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if ok && lit.Kind == token.STRING && (lit.Value[0] == '`' || utf8.RuneCountInString(lit.Value) > maxColumns-20) {
			add(lit.Pos(), lit.End())
		}
		return true
	})
	for _, g := range f.Comments {
		for _, c := range g.List {
			if output.MatchString(c.Text) {
				add(c.Pos(), g.End())
			}
		}
	}
	return lines
}

// checkGo returns the long lines of a Go file, and the words in its comments and
// error texts.
func checkGo(name string, src []byte, list *wordList) ([]finding, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var found []finding
	whole := indivisible(fset, f)
	lines := bufio.NewScanner(bytes.NewReader(src))
	lines.Buffer(nil, len(src)+1)
	for n := 1; lines.Scan(); n++ {
		if c := utf8.RuneCount(lines.Bytes()); c > maxColumns && !whole[n] {
			found = append(found, finding{n, fmt.Sprintf("%d characters, want at most %d", c, maxColumns)})
		}
	}
	at := func(pos token.Pos, text string) {
		line := fset.Position(pos).Line
		for _, w := range list.find(text) {
			found = append(found, finding{line + w.line - 1, w.text})
		}
	}
	for _, g := range f.Comments {
		if ast.IsGenerated(f) {
			break
		}
		var b strings.Builder
		for _, c := range g.List {
			text := c.Text
			if regexp.MustCompile(`^//(go:|\t)`).MatchString(text) {
				text = "" // a directive, or code
			}
			b.WriteString(span.ReplaceAllString(text, "`") + "\n")
		}
		at(g.Pos(), b.String())
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Errorf" && s.Sel.Name != "New" {
			return true
		}
		if x, ok := s.X.(*ast.Ident); !ok || x.Name != "fmt" && x.Name != "errors" {
			return true
		}
		if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				at(lit.Pos(), optional.ReplaceAllString(text, "[]"))
			}
		}
		return true
	})
	return found, nil
}
