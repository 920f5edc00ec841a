package debugui

import (
	"encoding/json"
	"strings"

	"github.com/warmroute/router"
)

// noTargets are the page's own reasons: why a prompt found no target.
var noTargets = []router.ReasonText{
	{Reason: "no_target_not_ready", Text: "no target was ready"},
	{Reason: "no_target_excluded", Text: "all that were ready had been tried"},
	{Reason: "no_target_shed", Text: "it waited in vain, or too many wait"},
	{Reason: "no_target_empty_fleet", Text: "the fleet has no targets"},
}

// reasonsJS returns the page's list of reasons in words, a module of JavaScript.
func reasonsJS() ([]byte, error) {
	var b strings.Builder
	b.WriteString("export const reasons = {\n")
	for _, r := range append(router.Reasons(), noTargets...) {
		name, err := json.Marshal(r.Reason)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(r.Text)
		if err != nil {
			return nil, err
		}
		b.WriteString("  " + string(name) + ": " + string(text) + ",\n")
	}
	b.WriteString("};\n")
	return []byte(b.String()), nil
}
