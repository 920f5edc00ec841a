package router_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

// The constants, their comments and Reasons say the same, each reason once.
func TestReasons(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ reason, text string }
	var consts, table []row
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(v.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		consts = append(consts, row{value, strings.TrimSpace(v.Comment.Text())})
		return true
	})
	seen := map[string]bool{}
	chosen := true
	for _, r := range router.Reasons() {
		table = append(table, row{string(r.Reason), r.Text})
		if seen[string(r.Reason)] || r.Reason == "" || r.Text == "" || strings.HasSuffix(r.Text, ".") {
			t.Errorf("%q: %q", r.Reason, r.Text)
		}
		seen[string(r.Reason)] = true
		if r.Chosen && !chosen {
			t.Errorf("%q is of a decision and comes after one that is not", r.Reason)
		}
		chosen = r.Chosen
	}
	if diff := cmp.Diff(consts, table, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("constants and table (-constants +table):\n%s", diff)
	}
	for s := router.Unhealthy; s <= router.Asleep+1; s++ {
		if !seen[string(router.ReasonOf(s))] {
			t.Errorf("nothing is said of %q", router.ReasonOf(s))
		}
	}
	router.Reasons()[0].Text = "changed"
	if router.Reasons()[0].Text == "changed" {
		t.Error("the caller's slice is everybody's")
	}
}
