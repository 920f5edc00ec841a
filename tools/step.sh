#!/usr/bin/env bash
# Runs a command and says how long it took, on the clock and on the processors.
#
#	tools/step.sh NAME COMMAND...
name=$1
shift
TIMEFORMAT='%R s, %U s + %S s of CPU'
exec 3>&1 4>&2
took=$({ time { "$@" >&3 2>&4; echo "$?"; }; } 2>&1)
status=${took%%$'\n'*}
took=${took#*$'\n'}
[ "$status" = 0 ] || { echo "== $name failed after $took"; exit 1; }
echo "== $name: $took"
