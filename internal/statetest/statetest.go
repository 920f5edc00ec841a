// Package statetest has engines that keep state in their process, as real ones do, and a test that a host before them
// sends each request that names such state to the engine that has it.
package statetest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Engine is an engine that keeps responses, files and media in its process, as engines do.
type Engine struct {
	// Name is in every id that it makes, behind the first underscore. URL is its address.
	Name, URL string
	// Close ends it.
	Close func()

	mu   sync.Mutex
	held map[string]chan struct{} // by id; closed when the id is first asked for
	next int
}

// New returns an engine, which t closes.
func New(t testing.TB, name string) *Engine {
	e := Start(name)
	t.Cleanup(e.Close)
	return e
}

// Start returns an engine outside of tests, which Close ends.
func Start(name string) *Engine {
	k := &Engine{Name: name, held: map[string]chan struct{}{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", k.create)
	mux.HandleFunc("POST /v1/conversations", func(w http.ResponseWriter, _ *http.Request) {
		k.answer(w, k.make("conv"), "conversation")
	})
	mux.HandleFunc("POST /v1/files", func(w http.ResponseWriter, _ *http.Request) { k.answer(w, k.make("file"), "file") })
	for _, p := range []string{
		"GET /v1/responses/{id}", "POST /v1/responses/{id}/cancel", "DELETE /v1/responses/{id}",
		"GET /v1/responses/{id}/input_items", "GET /v1/files/{id}/content", "GET /v1/conversations/{id}/items",
	} {
		mux.HandleFunc(p, func(w http.ResponseWriter, r *http.Request) {
			if k.has(w, r.PathValue("id")) {
				k.answer(w, r.PathValue("id"), "response")
			}
		})
	}
	mux.HandleFunc("POST /v1/chat/completions", k.chat)
	srv := httptest.NewServer(mux)
	k.URL, k.Close = srv.URL, srv.Close
	return k
}

func (k *Engine) make(kind string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next++
	id := fmt.Sprintf("%s_%s_%d", kind, k.Name, k.next)
	k.held[id] = make(chan struct{})
	return id
}

// Restart loses all that the engine kept.
func (k *Engine) Restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.held)
}

// has reports whether the engine has id, and answers if it has not.
func (k *Engine) has(w http.ResponseWriter, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked, ok := k.held[id]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":{"message":"%s does not have %s","type":"invalid_request_error","code":404}}`, k.Name, id)
		return false
	}
	select {
	case <-asked:
	default:
		close(asked)
	}
	return true
}

func (k *Engine) answer(w http.ResponseWriter, id, object string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%q,"created_at":1,"object":%q,"by":%q,"output":[{"type":"message","role":"assistant",`+
		`"content":[{"type":"output_text","text":"hello"}]}]}`, id, object, k.Name)
}

func (k *Engine) create(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Stream       bool
		Previous     string `json:"previous_response_id"`
		Conversation string
	}
	if json.NewDecoder(r.Body).Decode(&b) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, id := range []string{b.Previous, b.Conversation} {
		if id != "" && !k.has(w, id) {
			return
		}
	}
	id := k.make("resp")
	if !b.Stream {
		k.answer(w, id, "response")
		return
	}
	k.mu.Lock()
	asked := k.held[id]
	k.mu.Unlock()
	event(w, fmt.Sprintf(`{"type":"response.created","response":{"id":%q,"object":"response","output":[]}}`, id))
	event(w, `{"type":"response.output_text.delta","output_index":0,"delta":"hello"}`)
	select { // it streams until somebody asks for it
	case <-asked:
	case <-r.Context().Done():
		return
	}
	event(w, fmt.Sprintf(`{"type":"response.completed","response":{"id":%q,"object":"response","output":[]}}`, id))
}

// chat takes an image by its uuid if it has it.
func (k *Engine) chat(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Messages []struct {
			Content []struct {
				URL  *struct{ URL string } `json:"image_url"`
				UUID string
			}
		}
	}
	if json.NewDecoder(r.Body).Decode(&b) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, m := range b.Messages {
		for _, c := range m.Content {
			switch {
			case c.URL != nil:
				k.mu.Lock()
				k.held[c.UUID] = make(chan struct{})
				k.mu.Unlock()
			case c.UUID != "" && !k.has(w, c.UUID):
				return
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","by":%q,"choices":[{"index":0,"message":`+
		`{"role":"assistant","content":"a cat"},"finish_reason":"stop"}]}`, k.Name)
}

func event(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
}

// Host is how a test reaches a host before engines.
type Host struct {
	URL    string
	Client *http.Client
	// Models are those that users of responses name in turn; nil: all name "m".
	Models []string
}

// reply is one of an Engine's.
type reply struct {
	status int
	ID, By string
	body   string
}

func (h Host) send(t testing.TB, method, path, body string) (r reply) {
	t.Helper()
	resp := h.do(t, method, path, body)
	if resp == nil {
		return r
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	r.status, r.body = resp.StatusCode, string(b)
	if r.status < 400 {
		if err := json.Unmarshal(b, &r); err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, b)
		}
	}
	return r
}

func (h Host) do(t testing.TB, method, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return nil
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := h.Client.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	return resp
}

// turn makes a response after a previous one and returns its id. It asks for it as soon as it is known, while a stream
// waits for that.
func (h Host) turn(t testing.TB, model, previous string, stream bool) string {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"input":"go on","stream":%v`, model, stream)
	if previous != "" {
		body += fmt.Sprintf(`,"previous_response_id":%q`, previous)
	}
	resp := h.do(t, "POST", "/v1/responses", body+"}")
	if resp == nil {
		return ""
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(in)
		t.Errorf("after %q: %d %s", previous, resp.StatusCode, b)
		return ""
	}
	var made struct {
		ID       string
		Response struct{ ID string }
	}
	line := []byte(nil)
	if stream {
		for !bytes.HasPrefix(line, []byte("data: ")) {
			var err error
			if line, err = in.ReadBytes('\n'); err != nil {
				t.Errorf("after %q: %v", previous, err)
				return ""
			}
		}
		line = line[len("data: "):]
	} else {
		var err error
		if line, err = io.ReadAll(in); err != nil {
			t.Errorf("after %q: %v", previous, err)
			return ""
		}
	}
	if err := json.Unmarshal(line, &made); err != nil {
		t.Errorf("%v in %s", err, line)
		return ""
	}
	id := cmp.Or(made.ID, made.Response.ID)
	if r := h.send(t, "GET", "/v1/responses/"+id, ""); r.status != 200 || r.ID != id {
		t.Errorf("GET %s: %d %s", id, r.status, r.body)
		return "" // a stream waits for that
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Error(err)
	}
	return id
}

// Run sends what names state of one engine through a host with at least three of them, and reports each request that
// went to another than the one that has it: continuations, GET, cancel, DELETE and the list of input items of
// responses, whole and while they stream; conversations and files; media by their uuid.
func Run(t *testing.T, h Host, engines ...*Engine) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("responses, stream %v", stream), func(t *testing.T) { h.responses(t, stream, engines) })
	}
	if h.Models != nil {
		return // the rest names no model
	}
	t.Run("conversations and files", func(t *testing.T) {
		for range 3 * len(engines) {
			conv := h.send(t, "POST", "/v1/conversations", "{}")
			file := h.send(t, "POST", "/v1/files", "--x\r\nno JSON\r\n--x--")
			for _, p := range []string{"/v1/conversations/" + conv.ID + "/items", "/v1/files/" + file.ID + "/content"} {
				if r := h.send(t, "GET", p, ""); r.status != 200 {
					t.Errorf("%s: %d %s", p, r.status, r.body)
				}
			}
			body := fmt.Sprintf(`{"model":"m","input":"hi","conversation":%q}`, conv.ID)
			if r := h.send(t, "POST", "/v1/responses", body); r.status != 200 || r.By != conv.By {
				t.Errorf("%s went to %s: %s", conv.ID, r.By, r.body)
			}
		}
	})
	t.Run("media", func(t *testing.T) {
		const first = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},` +
			`{"type":"image_url","image_url":%s,"uuid":"image-%d"}]}%s]}`
		const more = `,{"role":"assistant","content":[{"type":"text","text":"a cat"}]},` +
			`{"role":"user","content":[{"type":"text","text":"Why?"}]}`
		var by []string
		for i := range 20 {
			by = append(by, h.send(t, "POST", "/v1/chat/completions", fmt.Sprintf(first, `{"url":"http://images/1"}`, i, "")).By)
		}
		for i := range 20 {
			r := h.send(t, "POST", "/v1/chat/completions", fmt.Sprintf(first, "null", i, more))
			if r.status != 200 || r.By != by[i] {
				t.Errorf("image-%d went to %s first, then to %s: %d %s", i, by[i], r.By, r.status, r.body)
			}
		}
	})
}

func (h Host) responses(t *testing.T, stream bool, engines []*Engine) {
	const users, chain = 8, 6
	var wg sync.WaitGroup
	models := h.Models
	if models == nil {
		models = []string{"m"}
	}
	for u := range users {
		wg.Go(func() {
			id := ""
			for range chain {
				id = h.turn(t, models[u%len(models)], id, stream)
			}
			for _, what := range [][2]string{{"GET", "/input_items"}, {"POST", "/cancel"}, {"DELETE", ""}} {
				if r := h.send(t, what[0], "/v1/responses/"+id+what[1], ""); r.status != 200 || r.ID != id {
					t.Errorf("%s %s%s: %d %s", what[0], id, what[1], r.status, r.body)
				}
			}
		})
	}
	wg.Wait()
	id := h.turn(t, models[0], "", stream)
	for _, e := range engines {
		if strings.HasPrefix(id, "resp_"+e.Name+"_") {
			e.Restart()
			for range 3 { // its own answer, not another's
				r := h.send(t, "GET", "/v1/responses/"+id, "")
				if r.status != 404 || !strings.Contains(r.body, e.Name+" does not have") {
					t.Errorf("after the restart: %d %s", r.status, r.body)
				}
			}
		}
	}
}
