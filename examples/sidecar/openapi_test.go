package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

func description(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// checked holds every request and reply that goes through it to the description:
// a reply is one of those described, and a request that the service takes is
// right by it.
type checked struct {
	t    testing.TB
	next http.RoundTripper
	api  routers.Router
	mu   sync.Mutex
}

func newChecked(t testing.TB, next http.RoundTripper, base string) *checked {
	t.Helper()
	doc := description(t)
	doc.Servers = openapi3.Servers{{URL: base}}
	api, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &checked{t: t, next: next, api: api}
}

func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	out := r.Clone(r.Context())
	out.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := c.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	reply, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(reply))
	c.check(r.Clone(r.Context()), body, resp, reply)
	return resp, nil
}

func (c *checked) check(r *http.Request, body []byte, resp *http.Response, reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	route, params, err := c.api.FindRoute(r)
	if err != nil {
		c.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	wrong := openapi3filter.ValidateRequest(r.Context(), in)
	switch s := resp.StatusCode; {
	case s == 200 && wrong != nil:
		c.t.Errorf("%s %.200s was taken, but: %v", r.URL.Path, body, wrong)
	case s == 400 && wrong == nil && !valid400(body):
		c.t.Errorf("%s %.200s was not taken, but is right by the description", r.URL.Path, body)
	}
	err = openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header,
		Body: io.NopCloser(bytes.NewReader(reply)), Options: in.Options,
	})
	if err != nil {
		c.t.Errorf("%s: %d %.200s: %v", r.URL.Path, resp.StatusCode, reply, err)
	}
}

// valid400 reports whether body is one that a schema cannot distinguish from a
// valid one: two ways to say the prompt, or two values.
func valid400(body []byte) bool {
	return bytes.Contains(body, []byte(`"body":{},"prompt"`)) || bytes.Equal(body, []byte(`{} {}`))
}

// TestDescription: what is described is what is served, path by path.
func TestDescription(t *testing.T) {
	var described []string
	for path, item := range description(t).Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	var served []string
	for pattern := range new(Service).routes() {
		served = append(served, pattern)
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described %v, served %v", described, served)
	}
	h := newHost(t, 1, fast(), Config{})
	resp, err := h.client.Get(h.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(b, openapi) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
