#!/bin/sh
# Runs each fuzz target of the module for a short while; go test takes one at a time.
#
#	tools/fuzz.sh TIME [PACKAGE...]
#
# Fuzzing that ends while an input is being tried is now and then reported as a
# failure of its own deadline, without an input that fails. Such a run says nothing,
# so it is done again; one that fails with an input, or three times, is a failure.
set -eu
time=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT

once() {
	"${GO:-go}" test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" >"$out" 2>&1 && { tail -n 2 "$out"; return 0; }
	cat "$out"
	return 1
}

for pkg in $("${GO:-go}" list "${@:-./...}"); do
	for f in $("${GO:-go}" test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "fuzz $pkg $f"
		for try in 1 2 3; do
			once "$pkg" "$f" && break
			grep -q '^ *context deadline exceeded$' "$out" && ! grep -q 'Failing input written' "$out" && [ $try -lt 3 ] || exit 1
		done
	done
done
