// Package scopekey bounds the length of a scope that stands in a map.
package scopekey

import "crypto/sha256"

// max is the length in bytes up to which a scope is its own key.
const max = 256

// Of returns the key of a scope: the scope itself or, if it is longer than 256 bytes, a hash of it. The key of a key is
// that key.
func Of(scope string) string {
	if len(scope) <= max {
		return scope
	}
	h := sha256.Sum256([]byte(scope))
	return "\x00#" + string(h[:]) // no key of router.Prompt.Scope begins so
}
