package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// keeper is an engine that keeps responses, files and media in its process, as engines do.
type keeper struct {
	name string
	url  string

	mu   sync.Mutex
	held map[string]chan struct{} // by id; closed when the id is first asked for
	next int
}

func newKeeper(t *testing.T, name string) *keeper {
	k := &keeper{name: name, held: map[string]chan struct{}{}}
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
	t.Cleanup(srv.Close)
	k.url = srv.URL
	return k
}

func (k *keeper) make(kind string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next++
	id := fmt.Sprintf("%s_%s_%d", kind, k.name, k.next)
	k.held[id] = make(chan struct{})
	return id
}

// restart loses all that the engine kept.
func (k *keeper) restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.held)
}

// has reports whether the engine has id, and answers if it has not.
func (k *keeper) has(w http.ResponseWriter, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked, ok := k.held[id]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":{"message":"%s does not have %s","type":"invalid_request_error","code":404}}`, k.name, id)
		return false
	}
	select {
	case <-asked:
	default:
		close(asked)
	}
	return true
}

func (k *keeper) answer(w http.ResponseWriter, id, object string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":%q,"created_at":1,"object":%q,"by":%q,"output":[{"type":"message","role":"assistant",`+
		`"content":[{"type":"output_text","text":"hello"}]}]}`, id, object, k.name)
}

func (k *keeper) create(w http.ResponseWriter, r *http.Request) {
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
func (k *keeper) chat(w http.ResponseWriter, r *http.Request) {
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
		`{"role":"assistant","content":"a cat"},"finish_reason":"stop"}]}`, k.name)
}

// kept is a reply of a keeper.
type kept struct {
	status int
	ID, By string
	body   string
}

func (g *rig) keep(t *testing.T, method, path, body string) (k kept) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	k.status, k.body = resp.StatusCode, readAll(t, resp.Body)
	if k.status < 400 {
		if err := json.Unmarshal([]byte(k.body), &k); err != nil {
			t.Fatalf("%s: %v", k.body, err)
		}
	}
	return k
}

// turn makes a response and returns its id, asking for it with GET as soon as it is known.
func (g *rig) turn(t *testing.T, model, previous string, stream bool) string {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"input":"go on","stream":%v`, model, stream)
	if previous != "" {
		body += fmt.Sprintf(`,"previous_response_id":%q`, previous)
	}
	resp := g.post(t, "/v1/responses", body+"}")
	if resp.StatusCode != 200 {
		t.Errorf("after %q: %d %s", previous, resp.StatusCode, readAll(t, resp.Body))
		return ""
	}
	in := bufio.NewReader(resp.Body)
	var id string
	if stream {
		var e struct{ Response struct{ ID string } }
		if err := json.Unmarshal([]byte(nextData(t, in)), &e); err != nil {
			t.Error(err)
		}
		id = e.Response.ID
	} else {
		var k kept
		if err := json.NewDecoder(in).Decode(&k); err != nil {
			t.Error(err)
		}
		id = k.ID
	}
	if k := g.keep(t, "GET", "/v1/responses/"+id, ""); k.status != 200 || k.ID != id {
		t.Errorf("GET %s: %d %s", id, k.status, k.body)
		return "" // a stream waits for that
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Error(err)
	}
	return id
}

// A continuation goes to the engine that made what it continues, whatever the strategy,
// while the reply streams, and so do GET, cancel, DELETE and the list of input items. With
// several routes those go to the engine's route, though they name no model.
func TestResponsesStay(t *testing.T) {
	const users, chain = 8, 6
	for _, strategy := range []string{"round_robin", "least_work", "cache_aware", "random", "two routes"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", strategy, stream), func(t *testing.T) {
				engines := make(map[string]*keeper)
				var urls []string
				for _, name := range []string{"e0", "e1", "e2", "e3"} {
					engines[name] = newKeeper(t, name)
					urls = append(urls, engines[name].url)
				}
				var g *rig
				if strategy == "two routes" {
					g = serveFile(t, Config{}, twoKeeperRoutes(urls))
				} else {
					g = newRig(t, rigConfig{strategy: strategy}, urls...)
				}
				var wg sync.WaitGroup
				for u := range users {
					wg.Go(func() {
						id := ""
						for range chain {
							id = g.turn(t, fmt.Sprint("m", u%2), id, stream)
						}
						for _, what := range [][2]string{{"GET", "/input_items"}, {"POST", "/cancel"}, {"DELETE", ""}} {
							if k := g.keep(t, what[0], "/v1/responses/"+id+what[1], ""); k.status != 200 || k.ID != id {
								t.Errorf("%s %s%s: %d %s", what[0], id, what[1], k.status, k.body)
							}
						}
					})
				}
				wg.Wait()
				g.settled(t)

				id := g.turn(t, "m0", "", stream)
				name := strings.Split(id, "_")[1]
				engines[name].restart()
				for range 3 { // its own answer, not another's
					k := g.keep(t, "GET", "/v1/responses/"+id, "")
					if k.status != 404 || !strings.Contains(k.body, name+" does not have") {
						t.Errorf("after the restart: %d %s", k.status, k.body)
					}
				}
			})
		}
	}
}

func twoKeeperRoutes(urls []string) string {
	var b strings.Builder
	for i, u := range urls {
		fmt.Fprintf(&b, "[[providers]]\nname = \"p%d\"\napi_base = %q\n", i, u)
	}
	for i := range 2 {
		fmt.Fprintf(&b, "[[routes]]\nmodel = \"m%d\"\n", i)
		fmt.Fprintf(&b, "targets = [{ provider = \"p%d\" }, { provider = \"p%d\" }]\n", 2*i, 2*i+1)
	}
	return b.String()
}

// Conversations and files are followed from their own replies on; an id that nobody knows
// goes if it went before.
func TestConversationsAndFilesStay(t *testing.T) {
	var urls []string
	for _, name := range []string{"e0", "e1", "e2"} {
		urls = append(urls, newKeeper(t, name).url)
	}
	g := newRig(t, rigConfig{strategy: "round_robin"}, urls...)
	for range 9 {
		conv := g.keep(t, "POST", "/v1/conversations", "{}")
		file := g.keep(t, "POST", "/v1/files", "--x\r\nno JSON\r\n--x--")
		for _, p := range []string{"/v1/conversations/" + conv.ID + "/items", "/v1/files/" + file.ID + "/content"} {
			if k := g.keep(t, "GET", p, ""); k.status != 200 {
				t.Errorf("%s: %d %s", p, k.status, k.body)
			}
		}
		k := g.keep(t, "POST", "/v1/responses", fmt.Sprintf(`{"model":"m","input":"hi","conversation":%q}`, conv.ID))
		if k.status != 200 || k.By != conv.By {
			t.Errorf("%s went to %s: %s", conv.ID, k.By, k.body)
		}
	}
	k := g.keep(t, "GET", "/v1/responses/resp_unknown", "")
	if k.status != 404 || !strings.Contains(k.body, "does not have") {
		t.Errorf("%d %s", k.status, k.body)
	}
	for i, o := range g.ended() {
		if o.Reply != "" && g.prompts[i].Text == "" {
			t.Errorf("%+v was learned behind an empty prompt", o)
		}
	}
}

// A follow-up that names its image by the uuid alone stays with the replica that has it.
func TestNamedMediaStay(t *testing.T) {
	const chats = 200
	for _, strategy := range []string{"round_robin", "least_work"} {
		t.Run(strategy, func(t *testing.T) {
			var urls []string
			for _, name := range []string{"e0", "e1", "e2", "e3"} {
				urls = append(urls, newKeeper(t, name).url)
			}
			g := newRig(t, rigConfig{strategy: strategy}, urls...)
			say := func(i int, url, more string) kept {
				return g.keep(t, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[`+
					`{"type":"text","text":"What is it?"},{"type":"image_url","image_url":%s,"uuid":"image-%d"}]}%s]}`, url, i, more))
			}
			first := make([]kept, chats)
			for i := range first {
				first[i] = say(i, fmt.Sprintf(`{"url":"http://images/%d"}`, i), "")
			}
			left := 0
			for i, f := range first {
				k := say(i, "null", `,{"role":"assistant","content":[{"type":"text","text":"a cat"}]},`+
					`{"role":"user","content":[{"type":"text","text":"Why?"}]}`)
				if k.status != 200 || k.By != f.By {
					left++
				}
			}
			if left > 0 {
				t.Errorf("%d of %d follow-ups left their replica", left, chats)
			}
		})
	}
}
