#!/usr/bin/env bash
# Fails if a commit since the last tag has a subject of more than 72 characters.
# Without a tag it looks at the commits that origin/main, or main, does not have.
set -euo pipefail
since=$(git describe --tags --abbrev=0 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
[ -n "$since" ] || exit 0
long=$(git log --format='%h %s' "$since..HEAD" | awk '{ s = substr($0, index($0, " ") + 1) } length(s) > 72')
[ -z "$long" ] || { echo "subjects of more than 72 characters:" && echo "$long" && exit 1; }
