# Checks the fetch of a browser, from another origin, against the gateway: browser.sh CHROMIUM. Prints as client.py does.
printf 'version\tok\t%s\n' "$("$1" --version 2>/dev/null | head -n 1)"
"$1" --headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run \
  --user-data-dir="$(pwd)/profile" "$CONTROL/page" --remote-debugging-port=0 >/dev/null 2>&1 &
pid=$!
got=
for _ in $(seq 150); do
  got=$(curl -sS "$CONTROL/result")
  [ -n "$got" ] && break
  sleep 0.2
done
kill $pid
wait $pid 2>/dev/null
for what in whole streams; do
  case $got in
  *"$what 200 true"*) printf '%s\tok\tfrom another origin\n' "$what" ;;
  *) printf '%s\tFAILED\t%s\n' "$what" "$got" ;;
  esac
done
exit 0
