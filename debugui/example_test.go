package debugui_test

import (
	"fmt"
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
