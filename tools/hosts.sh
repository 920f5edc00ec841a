#!/usr/bin/env bash
# Runs each host example with its real program, and prints a row of docs/hosts.md for each: the p50 latency of one
# client without and with the library, and what failed while one of four replicas was killed.
#
#	tools/hosts.sh [HOST...]
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- reverseproxy grpcbalancer scorer sidecar extproc caddy frameworks
status=0
echo "| host | latency | one of four killed |"
echo "|---|---|---|"
for h; do
	out=$("${GO:-go}" -C "examples/$h" test -count=1 -v . 2>&1) || {
		echo "$out" | grep -E '^ *--- FAIL|_test.go:' >&2
		echo "$h: its tests fail" >&2
		status=1
	}
	skipped=$(echo "$out" | grep -c -- '--- SKIP')
	latency=$(echo "$out" | sed -nE 's/.*p50 at one client: (.*)/\1/p' | head -n1)
	killed=$(echo "$out" | sed -nE 's/.*(one of four killed: |_test.go:[0-9]+: (failed requests: ))(.*)/\2\3/p' | head -n1)
	echo "| $h | ${latency:-none measured} | ${killed:-none killed} |"
	[ "$skipped" = 0 ] || echo "$h: $skipped tests were skipped; go -C examples/$h test -v . says why" >&2
done
exit $status
