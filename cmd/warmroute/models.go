package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config"
	"github.com/warmroute/router/internal/reqbody"
)

const modelsPath = "/v1/models"

// match finds the route of a request: that of the model that it names, or of the target
// with the state that it refers to. A request that names neither means the only model of an
// engine; here it goes to the route * or to the only one.
func (s *service) match(p router.Prompt) (config.Match, bool) {
	model := p.Model
	if model == "" {
		if m, ok := s.gateway.Holding(p.Must); ok {
			return m, true
		}
	}
	m, ok := s.gateway.Route(model)
	if ok || model != "" {
		return m, ok
	}
	if routes := s.gateway.File().Routes; len(routes) == 1 {
		m, ok = s.gateway.Route(routes[0].Model)
		m.Requested = ""
	}
	return m, ok
}

// matches returns the route of a request. If it names no model and any engine could answer it, these are all routes in
// the order of the file, of which the first with a target serves it.
func (s *service) matches(r *http.Request, p router.Prompt) []config.Match {
	if m, ok := s.match(p); ok {
		return []config.Match{m}
	}
	if p.Model != "" || !forAny(r) {
		return nil
	}
	var all []config.Match
	for _, route := range s.gateway.File().Routes {
		if m, ok := s.gateway.Route(route.Model); ok {
			m.Requested = ""
			all = append(all, m)
		}
	}
	return all
}

// named reports whether models can be listed: a client can do nothing with a lone *,
// behind which the engines' own lists say more.
func (s *service) named() bool {
	for _, m := range s.gateway.Models() {
		if m.ID != "*" {
			return true
		}
	}
	return false
}

// listModels answers with the names that requests can use, in the form of the OpenAI API
// with the members that vLLM adds.
func (s *service) listModels(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, 0, "models can only be listed")
		return
	}
	data := []modelCard{}
	for _, m := range s.gateway.Models() {
		data = append(data, s.card(m))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data}) // the client may be gone
}

// modelCard is a model in the form of the OpenAI API with the members that vLLM adds.
type modelCard struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	OwnedBy string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
}

func (s *service) card(m config.Model) modelCard {
	e := modelCard{ID: m.ID, Object: "model", Created: s.began.Unix(), OwnedBy: "warmroute", Root: m.Route}
	if m.Kind == "adapter" {
		e.Root, e.Parent = m.ID, &m.Route
	}
	return e
}

// showModel answers for one model: a name of the list, or one that a pattern of it stands for.
func (s *service) showModel(w http.ResponseWriter, r *http.Request, id string) {
	if !readOnly(w, r) {
		return
	}
	m, ok := s.gateway.Route(id)
	if !ok {
		refuseModel(w, id, false)
		return
	}
	shown := config.Model{ID: id, Route: m.Route}
	for _, known := range s.gateway.Models() {
		if known.ID == id {
			shown = known
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(s.card(shown)) // the client may be gone
}

// maxShown bounds the part of a request that is repeated in an error, in bytes.
const maxShown = 256

// refuseModel answers a request that has no route, as an engine with another model does.
func refuseModel(w http.ResponseWriter, model string, body bool) {
	switch {
	case model == "" && body:
		refuseWith(w, http.StatusBadRequest, "BadRequestError", "model",
			"The request names no model, and there are several routes. "+modelsPath+" lists them.")
		return
	case model == "":
		refuseWith(w, http.StatusNotFound, "NotFoundError", "model",
			"The request has no body that could name a model, and there are several routes.")
		return
	}
	if len(model) > maxShown {
		model = strings.ToValidUTF8(model[:maxShown], "") + "..."
	}
	refuseWith(w, http.StatusNotFound, "NotFoundError", "model", fmt.Sprintf("The model `%s` does not exist.", model))
}

// refuseMember answers a request with a member that a client must not set, or in a form
// in which none can be looked for.
func refuseMember(w http.ResponseWriter, err error) {
	param := ""
	var member *reqbody.MemberError
	if errors.As(err, &member) {
		param = member.Name
	}
	message := err.Error()
	refuseWith(w, http.StatusBadRequest, "BadRequestError", param, strings.ToUpper(message[:1])+message[1:]+".")
}

// refuseWith answers with an error in the form of the engines' own.
func refuseWith(w http.ResponseWriter, status int, kind, param, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	type detail struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   string `json:"param"`
		Code    int    `json:"code"`
	}
	_ = json.NewEncoder(w).Encode(map[string]detail{"error": {message, kind, param, status}})
}
