package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// canary is in every field that a peer of the gateway fills in this file's test, and nowhere in the gateway's output.
const canary = "Canary7f3a"

// field returns a value of its own for a field: a leak names the field.
func field(name string) string { return canary + name + "Zz" }

// talkative starts a server that says the next of its raw answers to each connection's requests.
func talkative(t *testing.T, answers ...string) (url string, said *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	said = new(atomic.Int64)
	var others atomic.Int64 // pages and token ids
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path == "/health" { // otherwise nobody sends it more
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					return
				}
				count := &others
				if strings.HasPrefix(r.URL.Path, "/v1/") {
					count = said
				}
				_, _ = io.WriteString(c, answers[int(count.Add(1)-1)%len(answers)])
			}()
		}
	}()
	return "http://" + l.Addr().String(), said
}

// answers are those of engines with a canary in each part of them.
func canaryAnswers() []string {
	reply := func(status, header, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, header,
			len(body), body)
	}
	json := "Content-Type: application/json\r\n"
	return []string{
		reply("500 "+field("Status"), json, `{"error":{"message":"`+field("Message")+`","type":"`+field("Type")+`"}}`),
		reply("200 OK", "X-Reply: "+field("Header")+"\r\n"+json,
			`{"id":"`+field("ID")+`","model":"`+field("Model")+`","choices":[{"message":{"content":"`+field("Content")+`"}}],`+
				`"usage":{"prompt_tokens":"`+field("Usage")+`"}}`),
		reply("200 OK", json, `{"choices":[{"text":"`+field("Broken")),
		reply("429 "+field("Busy"), "Retry-After: "+field("RetryAfter")+"\r\n", field("BusyBody")),
		reply("302 Found", "Location: http://"+field("Location")+".invalid/\r\n", ""),
		reply("503 x", "Content-Type: "+field("MediaType")+"\r\nContent-Encoding: "+field("Coding")+"\r\n", field("Coded")),
		"HTTP/1.1 " + field("Code") + " OK\r\n\r\n",
		field("Proto") + "/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + field("NoColon") + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: " + field("Length") + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + field("Transfer") + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + field("Chunk") + "\r\n",
		"HTTP/1.1 101 " + field("Switch") + "\r\nUpgrade: " + field("Upgrade") + "\r\nConnection: Upgrade\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" +
			"data: {\"choices\":[{\"delta\":{\"content\":\"" + field("Delta") + "\"}}]}\n\nevent: " +
			field("Event") + "\ndata: {\"error\":{\"message\":\"" + field("StreamError") + "\"}}\n\n",
	}
}

// canaryRequest are the parts of requests with a canary in each, raw.
func canaryRequests() []string {
	body := `{"model":"m","messages":[{"role":"user","content":"` + field("Prompt") + `"}],"user":"` + field("User") +
		`","cache_salt":"` + field("Salt") + `","session_id":"` + field("Session") + `","` + field("Member") + `":1}`
	post := func(path, header, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n"+
			"X-Session-Id: %s\r\nCookie: a=%s\r\nX-Api-Key: %s\r\n%sContent-Length: %d\r\n\r\n%s", path, field("Bearer"),
			field("SessionHeader"),
			field("Cookie"), field("ApiKey"), header, len(body), body)
	}
	const chat = "/v1/chat/completions"
	json := "Content-Type: application/json\r\n"
	return []string{
		post(chat, json, body),
		post(chat, json, body[:len(body)-20]),
		post(chat, json, `{"model":"`+field("UnknownModel")+`","messages":[]}`),
		post(chat, json, `{"model":["`+field("WrongModel")+`"],"messages":{"`+field("WrongMessages")+`":1}}`),
		post(chat, json+"Content-Encoding: "+field("RequestCoding")+"\r\n", body),
		post(chat, json+"Content-Encoding: gzip\r\n", body),
		post(chat, "Content-Type: "+field("RequestMedia")+"\r\n", body),
		post(chat, json+"X-Rolter-Vllm-Token-Ids: 1,2,"+field("TokenIDs")+"\r\n", body),
		post(chat, json+"Traceparent: "+field("Traceparent")+"\r\nX-Request-Id: "+field("RequestID")+"\r\n", body),
		post(chat+"?key="+field("Query"), json, body),
		post(chat, json+"Expect: "+field("Expect")+"\r\n", body),
		post(chat, json+field("HeaderName")+": 1\r\nX-Forwarded-For: "+field("Forwarded")+"\r\nUser-Agent: "+
			field("Agent")+"\r\n", body),
		post(chat, json, `{"kv_transfer_params":{"`+field("KV")+`":"`+field("KVValue")+`"},"model":"m"}`),
		"POST " + chat + " HTTP/1.1\r\nHost: " + field("Host") + "\r\n" + field("BadHeader") + "\r\n\r\n",
		field("Method") + " " + chat + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"POST " + chat + " HTTP/9." + field("Version") + "\r\nHost: x\r\n\r\n",
		"POST " + chat + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + field("RequestLength") + "\r\n\r\n",
		"POST " + chat + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + field("RequestChunk") + "\r\n",
	}
}

// TestCanaries: nothing that a client or an engine wrote into any field is in the log, the pages or the metrics of the
// whole gateway, and nothing that a client wrote in the answer to another.
func TestCanaries(t *testing.T) {
	signalled(t)
	leakCheck(t)
	engine, asked := talkative(t, canaryAnswers()...)
	second, askedToo := talkative(t, canaryAnswers()...)
	pages := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Page", field(name+"Header"))
			if strings.Contains(r.URL.Path, "500") {
				w.WriteHeader(500)
			}
			fmt.Fprintf(w, "# HELP %s %s\nvllm:num_requests_waiting{a=\"%s\"} %s\n%s{ 1\n{\"occupancy\":\"%s\",\"%s\":0.5}\n",
				field(name+"Help"), field(name+"Text"), field(name+"Label"), field(name+"Value"), field(name+"Line"),
				field(name+"Occupancy"), field(name+"Member"))
		}))
		t.Cleanup(s.Close)
		return s
	}
	cache := pages("LMCache")
	zmtp := greeter(t)
	var b strings.Builder
	b.WriteString("[metrics_scrape]\nenabled = true\ninterval_secs = 0.1\ntimeout_secs = 1\n[health_probe]\nenabled = true\n" +
		"interval_secs = 0.1\n[health]\ncool_base = '10ms'\ncool_max = '20ms'\n")
	fmt.Fprintf(&b, "[[providers]]\nname = 'a'\napi_base = '%s/v1'\n[providers.kv_events]\nendpoint = 'tcp://%s'\n",
		engine, zmtp)
	fmt.Fprintf(&b, "[providers.lmcache]\nendpoint = '%s/x'\nrefresh_secs = 0.1\n", cache.URL)
	fmt.Fprintf(&b, "[[providers]]\nname = 'b'\napi_base = '%s/v1'\n"+
		"[providers.lmcache]\nendpoint = '%s/500'\nrefresh_secs = 0.1\n",
		second, cache.URL)
	for model, strategy := range map[string]string{"m": "precise_cache_aware", "l": "lmcache_aware"} {
		fmt.Fprintf(&b, "[[routes]]\nmodel = '%s'\nstrategy = '%s'\ntargets = [{ provider = 'a' }, { provider = 'b' }]\n"+
			"[routes.failover]\nfail_open = true\n", model, strategy)
		if model == "m" {
			b.WriteString("[routes.token_source]\nkind = 'tokenize'\n")
		}
	}
	path := t.TempDir() + "/gateway.toml"
	place(t, path, b.String())
	live := freeAddress(t)
	p := start(t, "-config", path, "-debug", live)
	send := func(raw string) string {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, raw)
		answer, _ := io.ReadAll(c)
		return string(answer)
	}
	look := func(where, text string) {
		t.Helper()
		for at := 0; ; {
			i := strings.Index(text[at:], canary)
			if i < 0 {
				return
			}
			at += i
			t.Errorf("%s quotes a peer: %.300q", where, text[max(0, at-200):])
			at += len(canary)
		}
	}
	requests := canaryRequests()
	eventually(t, "each answer of each engine has met a good request", func() bool {
		send(requests[0])
		return min(asked.Load(), askedToo.Load()) > int64(len(canaryAnswers()))
	})
	for _, r := range requests {
		send(r)
		send(strings.ReplaceAll(r, `"m"`, `"l"`))
	}
	for _, page := range []string{
		p.url + debugPath, p.url + "/healthz", p.url + "/readyz", "http://" + live + "/", "http://" + live + "/state",
		"http://" + live + "/metrics", p.url + "/metrics", "http://" + live + debugPath, "http://" + live + "/debug/pprof/",
	} {
		resp, err := http.Get(page)
		if err != nil {
			t.Error(err)
			continue
		}
		look(page, readAll(t, resp.Body))
		look(page, fmt.Sprint(resp.Header))
		resp.Body.Close()
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	look("the log", p.log.String())
	// Without these nothing was looked for.
	for _, want := range []string{"sent again", "LMCache occupancy"} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log has no %q", want)
		}
	}

}

// greeter is an event port that answers with errors that quote.
func greeter(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	greeting := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 16) + "\x00" +
		strings.Repeat("\x00", 31)
	command := func(name, body string) string {
		data := string(rune(len(name))) + name + body
		return "\x04" + string(rune(len(data))) + data
	}
	short := func(s string) string { return string(rune(len(s))) + s }
	says := []string{
		strings.Replace(greeting, "NULL", canary[:4], 1),
		greeting + command("ERROR", short(field("ZMTPError"))),
		greeting + command(field("ZMTPCommand"), "x"),
		greeting + command("READY", short("Socket-Type")+"\x00\x00\x00"+short(field("Socket"))),
		greeting + command("READY", short("Socket-Type")+"\x00\x00\x00"+short("PUB")) +
			"\x01\x02kv\x01\x08\x00\x00\x00\x00\x00\x00\x00\x01" +
			"\x00" + short(field("Payload")),
		field("Greeting") + strings.Repeat("x", 64),
	}
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, says[n%len(says)])
				_, _ = io.CopyN(io.Discard, c, 64)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
