package debugui_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/warmroute/router/debugui"
)

// The hooks of an event stream, as package zmqsub calls them.
func ExamplePage_Gap() {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// zmqsub.Trace{Gap: page.Gap, Transition: func(id string, from, to zmqsub.State, why string) {
	//	page.StreamChanged(id, from.String(), to.String(), why)
	// }}
	page.Gap("http://vllm-1:8000", 41, 44)
	page.StreamChanged("http://vllm-1:8000", "live", "resyncing", "gap")

	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/state", nil))
	fmt.Println(strings.Contains(w.Body.String(), "2 messages are missing between 41 and 44"))
	// Output: true
}

// A demonstration shows its measurements, and how far it is.
func ExamplePage_Present() {
	page, err := debugui.New(debugui.Config{Title: "A comparison"})
	if err != nil {
		log.Fatal(err)
	}
	page.Present(debugui.Story{About: "The same chats, twice.", Chapters: []debugui.Chapter{{
		Title:   "Which is sooner?",
		Columns: []debugui.Column{{Name: "a", State: debugui.Over}, {Name: "b", State: debugui.Running, Done: 3, Of: 10}},
		Rows:    []debugui.Row{{Label: "first token", Values: []string{"200 ms", "50 ms"}, Better: "4.0x better"}},
	}}})
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/state", nil))
	var state struct {
		Story struct {
			Chapters []struct {
				Columns []struct{ Name, State string }
			}
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Story.Chapters[0].Columns)
	// Output:
	// [{a over} {b running}]
}

// A program mounts profiles of its own next to the page: nobody reaches them by a name that DNS pointed here.
func ExamplePage_Guard() {
	page, err := debugui.New(debugui.Config{})
	if err != nil {
		panic(err)
	}
	h := page.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "profile") }))
	for _, host := range []string{"127.0.0.1:6060", "localhost", "evil.example"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil)
		r.Host = host
		h.ServeHTTP(w, r)
		fmt.Println(host, w.Code)
	}
	// Output:
	// 127.0.0.1:6060 200
	// localhost 200
	// evil.example 403
}
