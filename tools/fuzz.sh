#!/usr/bin/env bash
# Runs each fuzz target of the module for a short while, as many at a time as there
# are processors, with one worker each.
#
#	tools/fuzz.sh TIME
#
# Fuzzing that ends while an input is being tried is now and then reported as a
# failure of its own deadline, without an input that fails. Such a run says nothing,
# so it is done again; one that fails with an input, or three times, is a failure.
set -euo pipefail
export time=$1 go=${GO:-go} dir
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

once() { # package target binary
	(cd "$1" && "$3" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.parallel 1 \
		-test.fuzzcachedir "$("$go" env GOCACHE)/fuzz/warmroute/$1") >"$3.$2" 2>&1
}

target() { # package target
	local binary=$dir/${1//\//_}.test
	for try in 1 2 3; do
		if once "$1" "$2" "$binary"; then
			echo "fuzz $1 $2: $(grep 'elapsed: ' "$binary.$2" | tail -n 1)"
			return
		fi
		grep -q '^ *context deadline exceeded$' "$binary.$2" && ! grep -q 'Failing input written' "$binary.$2" || break
	done
	echo "fuzz $1 $2 failed"
	cat "$binary.$2"
	return 255 # xargs stops
}
export -f once target

# Files of nested modules are not among those of this one.
nested=$(git ls-files -- '*/go.mod' | sed 's#\(.*\)/go.mod#:(exclude)\1#')
mapfile -t exclude <<<"${nested:-:(exclude)none}"
found=$(git grep -o '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go' "${exclude[@]}" | sed 's#^\([^:]*/\)\?[^/:]*:func #\1 #')
sed 's#^ #./ #' <<<"$found" | sort -u >"$dir/targets"
cut -d ' ' -f 1 "$dir/targets" | sort -u | while read -r p; do
	binary=$dir/${p//\//_}.test
	"$go" test -c -fuzz Fuzz -o "$binary" "./$p"
done
[ "$(wc -l <"$dir/targets")" -gt 0 ]
xargs -P "$(nproc)" -L 1 bash -c 'target "$@"' target <"$dir/targets"
