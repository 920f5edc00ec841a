# Checks curl against the gateway, with HTTP/1.0, 1.1 and 2. Prints as client.py does.
control() { curl -sS -o /dev/null "$CONTROL$1"; }
say() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
check() { # NAME STATUS EXPECTED-PART ARGS...
  name=$1 status=$2 part=$3
  shift 3
  control /reset
  got=$(curl -sS --max-time 30 -w '\n%{http_code} %{http_version}' "$@" 2>&1)
  case $got in
  *"$part"*"
$status "*) say "$name" ok "HTTP/$(printf %s "$got" | tail -n 1 | cut -d' ' -f2)" ;;
  *) say "$name" FAILED "$(printf %s "$got" | tr '\n\t' '  ' | tail -c 200)" ;;
  esac
}
say version ok "$(curl -V | head -n 1 | cut -d' ' -f1,2)"
url=$BASE/v1/chat/completions
body='{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hello"}]}'
stream='{"model":"m","max_tokens":8,"stream":true,"messages":[{"role":"user","content":"hello"}]}'
type='Content-Type: application/json'
for v in 1.0 1.1 2-prior-knowledge; do
  check "HTTP/$v" 200 '"choices"' "--http$v" -H "$type" -d "$body" "$url"
  check "HTTP/$v stream" 200 '[DONE]' "--http$v" -N -H "$type" -d "$stream" "$url"
done
printf %s "$body" | gzip -c >body.gz
check gzip 200 '"choices"' -H "$type" -H 'Content-Encoding: gzip' --data-binary @body.gz "$url"
check 'unknown coding' 415 'not supported' -H "$type" -H 'Content-Encoding: br' --data-binary @body.gz "$url"
check chunked 200 '"choices"' -H "$type" -H 'Transfer-Encoding: chunked' -d "$body" "$url"
check '100-continue' 200 '"choices"' -H "$type" -H 'Expect: 100-continue' -d "$body" "$url"
check HEAD 200 '' -I "$BASE/v1/models"
check preflight 200 '' -X OPTIONS -H 'Origin: http://app' -H 'Access-Control-Request-Method: POST' "$url"
check 'not JSON' 400 'error' -H "$type" -d '{"model":' "$url"
check 'no path of an API' 404 'does not exist' "$BASE/pause"
check upload 200 '"id"' -F purpose=batch -F "file=@body.gz" "$BASE/v1/files"
