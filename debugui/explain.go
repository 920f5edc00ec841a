package debugui

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// trial is a prompt to try, as the page sends it.
type trial struct {
	Route string `json:"route"` // "", if there is none of that name: the first
	// Path is the API's, "/v1/chat/completions"; "": Body is a text, and becomes the
	// only turn of a chat.
	Path  string `json:"path"`
	Model string `json:"model"`
	Body  string `json:"body"`
}

// ranking is its result.
type ranking struct {
	Candidates []candidate `json:"candidates"`
	Of         int         `json:"of"`
	Length     int         `json:"length"`
	Unit       string      `json:"unit"`
	Model      string      `json:"model"`
	Note       string      `json:"note"` // why the prompt was not wholly understood
}

// serveExplain ranks the candidates for a prompt. Nothing is counted or kept.
func (p *Page) serveExplain(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		fail(w, http.StatusMethodNotAllowed, "only POST")
		return
	}
	if err := p.cross.Check(r); err != nil {
		fail(w, http.StatusForbidden, "only from the page itself")
		return
	}
	// No form of another site can send this type.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "want application/json")
		return
	}
	if !enter(w, p.trying) {
		return
	}
	defer func() { <-p.trying }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, p.cfg.MaxBody))
	if err != nil {
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			fail(w, http.StatusRequestEntityTooLarge, "the prompt is too long")
		} else {
			fail(w, http.StatusBadRequest, "the prompt did not come whole")
		}
		return
	}
	var t trial
	if err := json.Unmarshal(body, &t); err != nil {
		fail(w, http.StatusBadRequest, "not the JSON that the page sends")
		return
	}
	at := p.find(t.Route)
	if at == nil && t.Route == "" {
		p.mu.RLock()
		at = p.first
		p.mu.RUnlock()
	}
	if at == nil {
		fail(w, http.StatusNotFound, "no such route")
		return
	}
	watched, _ := at.sources()
	if watched.Router == nil {
		fail(w, http.StatusNotFound, "this route has no router to ask")
		return
	}
	pr, err := t.prompt(watched)
	out := ranking{Model: clip(pr.Model, 128), Candidates: []candidate{}}
	if err != nil {
		out.Note = "Not wholly understood: " + clip(err.Error(), 200)
	}
	length, unit := pr.Length()
	out.Length, out.Unit = length, unit.String()
	cs, err := watched.Router.Explain(r.Context(), pr)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, "the router could not rank the targets")
		return
	}
	out.Of = len(cs)
	out.Candidates = candidates(cs, "", maxRows)
	if len(cs) > 0 && cs[0].Target.State == router.Ready {
		out.Candidates[0].Chosen = true // the first is the one to take
	}
	reply(w, out)
}

// prompt reads the entered text as the gateway would.
func (t trial) prompt(w Route) (router.Prompt, error) {
	parse := w.Parse
	if parse == nil {
		parse = prompt.FromRequest
	}
	h := http.Header{"Content-Type": {"application/json"}}
	if t.Path != "" {
		return parse(t.Path, h, []byte(t.Body))
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	b, err := json.Marshal(struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
	}{t.Model, []message{{"user", t.Body}}})
	if err != nil {
		return router.Prompt{}, err
	}
	return parse("/v1/chat/completions", h, b)
}
