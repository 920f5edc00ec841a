package debugui

import (
	"embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
)

//go:embed static
var static embed.FS

// files are served by the last element of the path: as they are, but for reasons.js,
// which is made of router.Reasons.
var files = map[string]string{
	"":           "text/html; charset=utf-8",
	"style.css":  "text/css; charset=utf-8",
	"app.js":     "text/javascript; charset=utf-8",
	"tables.js":  "text/javascript; charset=utf-8",
	"reasons.js": "text/javascript; charset=utf-8",
	"dom.js":     "text/javascript; charset=utf-8",
	"icon.svg":   "image/svg+xml",
	"index.html": "text/html; charset=utf-8",
}

// policy lets the page load its own files and talk to its own origin, and nothing
// else; scripts and styles inside the HTML do not run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP serves the page under whatever path ends in a slash, and its parts
// below: mount it as mux.Handle("/debug/router/", page).
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !p.admits(w, r) {
		return
	}
	_, name := path.Split(r.URL.Path)
	if name == "explain" {
		p.serveExplain(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "only GET")
		return
	}
	switch name {
	case "state":
		p.serveState(w, r)
		return
	case "decision":
		p.serveDecision(w, r)
		return
	}
	kind, ok := files[name]
	if !ok {
		fail(w, http.StatusNotFound, "no such page; the path ends in a slash")
		return
	}
	if name == "" {
		name = "index.html"
	}
	read := func() ([]byte, error) { return static.ReadFile("static/" + name) }
	if name == "reasons.js" {
		read = reasonsJS
	}
	b, err := read()
	if err != nil {
		fail(w, http.StatusNotFound, "no such page")
		return
	}
	h.Set("Content-Type", kind)
	_, _ = w.Write(b) // the client may be gone
}

// Guard returns a handler that passes on to next the requests under a Host header that the page may be reached under,
// and refuses the others. Handlers that a program mounts next to the page need it, too. It is safe for concurrent use.
func (p *Page) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.admits(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// admits refuses a request under a Host header that the page must not be reached under.
func (p *Page) admits(w http.ResponseWriter, r *http.Request) bool {
	if p.mayHost(r.Host) {
		return true
	}
	fail(w, http.StatusForbidden, "this host name is not in debugui.Config.Hosts")
	return false
}

// mayHost reports whether the page may be reached under a Host header. A name that
// somebody else's DNS points here would make this page's origin theirs.
func (p *Page) mayHost(host string) bool {
	if p.hosts["*"] {
		return true
	}
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || p.hosts[name]
}

func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, why)
}

func reply(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, "cannot be written as JSON")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// enter takes a place, or answers 503 if there is none.
func enter(w http.ResponseWriter, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "too many at once")
		return false
	}
}
