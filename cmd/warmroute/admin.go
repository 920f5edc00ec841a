package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/warmroute/router/config"
	"github.com/warmroute/router/config/file"
)

// adminPath begins the paths of the admin API, on the debug address.
const adminPath = "/admin/v1/"

// maxAdmin bounds the body of a request of the admin API, as a file is bounded.
const maxAdmin = 4 << 20

// admin changes the configuration while the gateway runs.
type admin struct {
	service *service
	options config.Options
	token   string
	path    string // the file, "": there is none
	log     *slog.Logger

	mu sync.Mutex // one change at a time
}

// handler returns the API: every request needs the token.
func (a *admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+adminPath+"config", a.getConfig)
	mux.HandleFunc("PUT "+adminPath+"config", a.putConfig)
	mux.HandleFunc("GET "+adminPath+"providers", a.getProviders)
	mux.HandleFunc("GET "+adminPath+"providers/{name}", a.getProvider)
	mux.HandleFunc("PUT "+adminPath+"providers/{name}", a.putProvider)
	mux.HandleFunc("DELETE "+adminPath+"providers/{name}", a.deleteProvider)
	mux.HandleFunc("PUT "+adminPath+"providers/{name}/{source}", a.putSource)
	mux.HandleFunc("DELETE "+adminPath+"providers/{name}/{source}", a.deleteSource)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || subtle.ConstantTimeCompare([]byte(given), []byte(a.token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			reject(w, http.StatusUnauthorized, errors.New("the bearer token is missing or wrong"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// refusal is the body of an error.
type refusal struct {
	Error string `json:"error"`
	// Problems are those of a configuration, with their places in the text that was sent, if that was TOML.
	Problems []problem `json:"problems,omitempty"`
}

type problem struct {
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
	Value   any    `json:"value,omitempty"`
	Allowed string `json:"allowed,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
}

func reject(w http.ResponseWriter, status int, err error) {
	v := refusal{Error: err.Error()}
	var bad *file.Error
	if errors.As(err, &bad) {
		v.Error = "the configuration is wrong"
		for _, p := range bad.Problems {
			v.Problems = append(v.Problems, problem{p.Key, p.Message, p.Value, p.Allowed, p.Line, p.Column})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client may be gone
}

// fail answers with the status of an error.
func fail(w http.ResponseWriter, err error) {
	var bad *file.Error
	var long *http.MaxBytesError
	status := http.StatusUnprocessableEntity
	switch {
	case errors.As(err, &bad):
	case errors.As(err, &long):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, file.ErrNoProvider), errors.Is(err, file.ErrNoSource):
		status = http.StatusNotFound
	case errors.Is(err, file.ErrLastTarget), errors.Is(err, file.ErrNoRoute):
		status = http.StatusConflict
	case errors.Is(err, errChanged):
		status = http.StatusPreconditionFailed
	case errors.Is(err, errType):
		status = http.StatusUnsupportedMediaType
	case errors.Is(err, errWrite):
		status = http.StatusInternalServerError
	}
	reject(w, status, err)
}

var (
	errChanged = errors.New("the configuration is another one by now than that of If-Match")
	errType    = errors.New("the Content-Type is not application/json or application/toml")
	errWrite   = errors.New("the file cannot be written, so nothing was changed")
	errNoFile  = errors.New("write: there is no -config to write to")
)

// tag returns the ETag of the configuration in place.
func (a *admin) tag() string {
	sum := sha256.Sum256(a.service.gateway.File().Data())
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// document returns the configuration in place, as it was written: without defaults.
func (a *admin) document() (*file.Document, error) {
	return file.NewDocument(a.service.gateway.File().Data())
}

// getConfig answers with the effective configuration, or with ?defaults=false as it was written, in TOML or JSON.
func (a *admin) getConfig(w http.ResponseWriter, r *http.Request) {
	f := a.service.gateway.File()
	text := []byte(f.Effective())
	if r.URL.Query().Get("defaults") == "false" {
		text = f.Data()
	}
	w.Header().Set("ETag", a.tag())
	if !strings.Contains(r.Header.Get("Accept"), "json") {
		w.Header().Set("Content-Type", "application/toml")
		_, _ = w.Write(text)
		return
	}
	d, err := file.NewDocument(text)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(d.JSON())
}

func (a *admin) putConfig(w http.ResponseWriter, r *http.Request) {
	body, json, err := read(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	if json {
		d, err := file.NewDocumentJSON(body)
		if err != nil {
			fail(w, err)
			return
		}
		body = d.TOML()
	}
	a.change(w, r, func(*file.Document) ([]byte, error) { return body, nil })
}

func (a *admin) getProviders(w http.ResponseWriter, _ *http.Request) {
	d, err := a.document()
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("ETag", a.tag())
	respond(w, map[string]any{"providers": d.Providers()})
}

func (a *admin) getProvider(w http.ResponseWriter, r *http.Request) {
	d, err := a.document()
	if err == nil {
		var p map[string]any
		if p, err = d.Provider(r.PathValue("name")); err == nil {
			w.Header().Set("ETag", a.tag())
			respond(w, p)
			return
		}
	}
	fail(w, err)
}

// putProvider creates a provider, for the routes of ?route=…, or changes one.
func (a *admin) putProvider(w http.ResponseWriter, r *http.Request) {
	a.table(w, r, func(d *file.Document, t map[string]any) error {
		return d.SetProvider(r.PathValue("name"), t, r.URL.Query()["route"]...)
	})
}

func (a *admin) putSource(w http.ResponseWriter, r *http.Request) {
	a.table(w, r, func(d *file.Document, t map[string]any) error {
		return d.SetSource(r.PathValue("name"), r.PathValue("source"), t)
	})
}

func (a *admin) deleteProvider(w http.ResponseWriter, r *http.Request) {
	a.edit(w, r, func(d *file.Document) error { return d.RemoveProvider(r.PathValue("name")) })
}

func (a *admin) deleteSource(w http.ResponseWriter, r *http.Request) {
	a.edit(w, r, func(d *file.Document) error { return d.RemoveSource(r.PathValue("name"), r.PathValue("source")) })
}

// table is edit with the table that the body has.
func (a *admin) table(w http.ResponseWriter, r *http.Request, f func(*file.Document, map[string]any) error) {
	body, json, err := read(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	var t map[string]any
	if json {
		t, err = file.TableJSON(body)
	} else {
		t, err = file.Table(body)
	}
	if err != nil {
		fail(w, err)
		return
	}
	a.edit(w, r, func(d *file.Document) error { return f(d, t) })
}

// edit is change for a part of the configuration.
func (a *admin) edit(w http.ResponseWriter, r *http.Request, f func(*file.Document) error) {
	a.change(w, r, func(d *file.Document) ([]byte, error) {
		err := f(d)
		return d.TOML(), err
	})
}

// read returns the body of r, and whether it is JSON.
func read(w http.ResponseWriter, r *http.Request) (body []byte, json bool, err error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/json":
		json = true
	case err == nil && (kind == "application/toml" || kind == "text/plain"):
	default:
		return nil, false, errType
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxAdmin))
	return body, json, err
}

func respond(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client may be gone
}

// applied is the answer to a change.
type applied struct {
	Applied  bool     `json:"applied"` // false: it was tried alone
	Written  bool     `json:"written"`
	Targets  int      `json:"targets"`
	Warnings []string `json:"warnings,omitempty"`
}

// change puts the result of f, which is given the configuration in place, in that one's place. With ?dry_run=true
// it is tried alone, and with ?write=true it is the file's, too.
func (a *admin) change(w http.ResponseWriter, r *http.Request, f func(*file.Document) ([]byte, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := r.URL.Query()
	dry, write := q.Get("dry_run") == "true", q.Get("write") == "true"
	if write && a.path == "" {
		reject(w, http.StatusConflict, errNoFile)
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != "*" && match != a.tag() {
		fail(w, errChanged)
		return
	}
	d, err := a.document()
	if err != nil {
		fail(w, err)
		return
	}
	text, err := f(d)
	if err != nil {
		fail(w, err)
		return
	}
	next, err := config.Parse(text, a.options)
	if err != nil {
		fail(w, err)
		return
	}
	out := applied{Applied: !dry, Written: write && !dry}
	for _, p := range next.Warnings {
		out.Warnings = append(out.Warnings, p.String())
	}
	g := a.service.gateway
	if dry {
		err = g.Try(next)
	} else {
		err = a.apply(next, text, write)
	}
	if err != nil {
		fail(w, err)
		return
	}
	for i := range next.Providers {
		out.Targets += next.Providers[i].Ranks
	}
	w.Header().Set("ETag", a.tag())
	respond(w, out)
}

// apply puts next, which was read from text, in place, and into the file if write says so: both, or nothing.
func (a *admin) apply(next *file.File, text []byte, write bool) error {
	g := a.service.gateway
	before := g.File()
	if err := g.Reload(next); err != nil {
		return err
	}
	err := a.service.update()
	if err == nil && write {
		if err = replaceFile(a.path, text); err != nil {
			err = errors.Join(errWrite, err)
		}
	}
	if err == nil {
		a.log.Info("the configuration was changed by the admin API", "written", write)
		return nil
	}
	if back := g.Reload(before); back == nil {
		_ = a.service.update() // it worked before
	}
	a.log.Warn("a change by the admin API was taken back", "err", err)
	return err
}

// replaceFile puts text in the place of a file in one step, with the file's mode.
func replaceFile(path string, text []byte) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to // the file, not the link to it
	}
	mode := os.FileMode(0o600)
	if st, err := os.Stat(path); err == nil {
		mode = st.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(text))
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
