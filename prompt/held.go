package prompt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/jsonscan"
)

// State that one engine has in its process, by its id: responses, conversations, files, media that were sent under a
// name. A request that names one must go to that engine.

// maxHeld bounds the ids of one request or reply that are kept.
const maxHeld = 64

// mediaID begins the ids of media. Their names are the clients' own, so they could be the id of anything else.
const mediaID = "media:"

// heldIDs are the ids that a body names.
type heldIDs struct {
	previous, conversation string
	files, media           []string
	brings                 []string // media that are in the body too
}

func addHeld(ids []string, id string) []string {
	if id == "" || len(ids) >= maxHeld {
		return ids
	}
	if id = heldID(id); !slices.Contains(ids, id) {
		ids = append(ids, id)
	}
	return ids
}

// heldID returns id, or the digest that a router.Holders has in its place if it is too long.
func heldID(id string) string {
	if len(id) <= router.MaxHeldID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// refer sets the ids of q to those of the body and the path.
func (h *heldIDs) refer(q *router.Prompt, path string) {
	q.Brings = h.brings
	if path == "" && h.previous == "" && h.conversation == "" && len(h.files)+len(h.media) == 0 {
		return
	}
	must := addHeld(nil, path)
	must = addHeld(must, h.previous)
	must = addHeld(must, h.conversation)
	for _, id := range h.files {
		must = addHeld(must, id)
	}
	for _, id := range h.media {
		if !slices.Contains(h.brings, id) { // it was sent in an earlier turn of this body
			must = addHeld(must, id)
		}
	}
	q.Must = must
}

// statePaths are followed by an id.
var statePaths = [...]string{"/v1/responses/", "/v1/conversations/", "/v1/files/"}

// pathID returns the id of the state that a path refers to, as /v1/responses/resp_1/cancel does, "" for none.
func pathID(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	for _, s := range statePaths {
		_, rest, ok := strings.Cut(path, s)
		if !ok {
			continue
		}
		id, _, _ := strings.Cut(rest, "/")
		if id == "compact" || id == "input_tokens" { // operations on a response that has no id yet
			return ""
		}
		if plain, err := url.PathUnescape(id); err == nil {
			id = plain
		}
		return id
	}
	return ""
}

// KeepsState reports whether engines keep state for requests with this path: responses, conversations and files. A
// host that passes a reply to one on calls Reply.Made before the client gets the bytes.
func KeepsState(path string) bool {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimRight(path, "/") + "/"
	return slices.ContainsFunc(statePaths[:], func(s string) bool { return strings.Contains(path, s) })
}

// medium puts the name of a medium in the place of its content: to the engine that is all of its identity. It reports
// whether there is one.
func (p *parse) medium(d *digest) bool {
	if len(p.name) == 0 || p.Fault != 0 {
		return false
	}
	id := mediaID + string(p.name)
	if d.n > 0 {
		p.held.brings = addHeld(p.held.brings, id)
	} else {
		p.held.media = addHeld(p.held.media, id)
	}
	*d = digest{}
	d.add([]byte(id))
	return true
}

// made are the ids of the state that a reply has made.
type made struct {
	ids  []string
	done bool // nothing more is looked for
	seen int  // the length of the JSON reply that was read last
	work int  // bytes that were read
}

// Made returns the ids of the state that the reply has made at the engine, as far as they have come: a response's and
// its conversation's own, a new conversation's, an uploaded file's. It is for a reply of a good status, and is meant
// to be called after each Write, before the client gets the bytes: a client may send its next request as soon as it
// knows the id (router.Lease.Made). The slice is the Reply's until the next Write.
func (r *Reply) Made() []string {
	if r == nil {
		return nil
	}
	return r.ids(false)
}

// ids is Made; if ended is set, the reply has come to its end.
func (r *Reply) ids(ended bool) []string {
	if r.form != formObject || r.made.done {
		return r.made.ids
	}
	a := &r.made
	text := bytes.TrimRight(r.object(), " \t\r\n")
	if len(text) < a.seen { // it became too long, and is a skim from now on
		a.seen, a.work = 0, 0
	}
	// The last bytes may have come, unless too many of a reply's pieces look like it.
	whole := len(text) > a.seen && text[len(text)-1] == '}' && a.work <= 16*len(text)+(64<<10)
	if !ended && !whole && a.seen > 0 && len(text) < 2*a.seen {
		return a.ids // not read again for each few bytes
	}
	a.seen = len(text)
	a.work += len(text)
	r.members.scan(text, nil)
	m := &r.members
	kind := m.str("object")
	if kind == nil {
		kind = m.str("type") // Anthropic's files
	}
	switch string(kind) {
	case "":
	case "response", "conversation", "file":
		if s := m.get("id"); s.Peek() == '"' && !begins(m.at("deleted"), "true") {
			a.take(s)
			a.conversation(m.get("conversation"))
		}
		a.done = m.end.Fault == 0
	default:
		a.done = true
	}
	return a.ids
}

// event looks for ids in an event of responses.
func (a *made) event(m *members) {
	if a.done {
		return
	}
	s := m.get("response")
	if s.Peek() != '{' {
		return
	}
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		switch string(k) {
		case "id":
			a.take(s)
		case "conversation":
			a.conversation(s)
		}
		s.Skip()
	}
	a.done = len(a.ids) > 0
}

// take adds the string that is next.
func (a *made) take(s jsonscan.Scanner) {
	if s.Peek() != '"' {
		return
	}
	if id := s.AppendString(nil); s.Fault == 0 {
		a.ids = addHeld(a.ids, string(id))
	}
}

// conversation adds the id of the conversation that is next.
func (a *made) conversation(s jsonscan.Scanner) {
	if s.Peek() != '{' {
		a.take(s)
		return
	}
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		if string(k) == "id" {
			a.take(s)
		}
		s.Skip()
	}
}
