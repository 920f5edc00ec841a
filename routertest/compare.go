package routertest

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/warmroute/router"
)

// differ says how two results differ, "" if they do not.
func differ(a, b result) string {
	if (a.err == nil) != (b.err == nil) {
		return fmt.Sprintf("error %v, and %v", a.err, b.err)
	}
	if a.err != nil {
		return ""
	}
	x, y := describe(a.d), describe(b.d)
	if x == y {
		return ""
	}
	return x + ", and " + y
}

func describe(d router.Decision) string {
	return fmt.Sprintf("%s (cached %d of %d %s, %q)", d.Target.ID, d.Cached, d.Length, d.Unit, d.Reason)
}

// sameTarget reports whether a and b are equal in every field; NaN equals
// itself.
func sameTarget(a, b router.Target) bool {
	return a.ID == b.ID && math.Float64bits(a.Weight) == math.Float64bits(b.Weight) &&
		a.Load == b.Load && a.State == b.State && sameRef(a.Ref, b.Ref)
}

func sameRef(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if va.Type() != vb.Type() {
		return false
	}
	if va.Comparable() && vb.Comparable() {
		return a == b
	}
	return true // unknown
}

func samePrompt(a, b router.Prompt) bool {
	return a.Model == b.Model && a.Adapter == b.Adapter && a.Salt == b.Salt &&
		a.Session == b.Session && a.Text == b.Text && sameTokens(a.Tokens, b.Tokens)
}

func sameTokens(a, b []uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func countReady(targets []router.Target) int {
	n := 0
	for i := range targets {
		if targets[i].State == router.Ready {
			n++
		}
	}
	return n
}

// valid describes the fault of a result of Pick, "" if it keeps to Offered,
// NoTarget and Lengths.
func valid(p router.Prompt, targets []router.Target, d router.Decision, err error) string {
	if bad := chosen(targets, d, err); bad != "" || err != nil {
		return bad
	}
	return sound(p, d)
}

// chosen describes the fault of the choice itself.
func chosen(targets []router.Target, d router.Decision, err error) string {
	ready := countReady(targets)
	switch {
	case err != nil && !errors.Is(err, router.ErrNoTarget):
		return fmt.Sprintf("the error is not router.ErrNoTarget: %v", err)
	case err != nil && ready > 0:
		return fmt.Sprintf("%v, though %d of %d are Ready", err, ready, len(targets))
	case err != nil:
		return ""
	case ready == 0:
		return fmt.Sprintf("none of %d targets is Ready, and %q was chosen", len(targets), d.Target.ID)
	case d.Target.State != router.Ready:
		return fmt.Sprintf("%q was chosen, which is %s", d.Target.ID, d.Target.State)
	}
	return offeredAs(targets, d.Target)
}

// offeredAs describes the fault of a target that should be one of those
// offered.
func offeredAs(targets []router.Target, t router.Target) string {
	found := false
	for i := range targets {
		if sameTarget(targets[i], t) {
			return ""
		}
		found = found || targets[i].ID == t.ID
	}
	if found {
		return fmt.Sprintf("%q is not as it was offered: %+v", t.ID, t)
	}
	return fmt.Sprintf("%q was not offered", t.ID)
}

// sound describes the fault of a decision's prompt and numbers.
func sound(p router.Prompt, d router.Decision) string {
	if !samePrompt(p, d.Prompt) {
		return "the decision carries another prompt than the one that was asked for"
	}
	return soundNumbers(p, d.Cached, d.Length, d.Unit)
}

func soundNumbers(p router.Prompt, cached, length int, unit router.Unit) string {
	switch {
	case cached < 0 || cached > length:
		return fmt.Sprintf("cached %d of %d", cached, length)
	case empty(p) != (length == 0):
		return fmt.Sprintf("length %d of a prompt with %d bytes and %d tokens", length, len(p.Text), len(p.Tokens))
	case unit != router.Bytes && unit != router.Tokens:
		return fmt.Sprintf("unit %d", unit)
	case unit == router.Tokens && length != len(p.Tokens):
		return fmt.Sprintf("length %d of %d tokens", length, len(p.Tokens))
	case unit == router.Bytes && p.Text != "" && length != len(p.Text):
		return fmt.Sprintf("length %d of %d bytes", length, len(p.Text))
	}
	return ""
}
