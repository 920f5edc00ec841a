package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2"
)

// The telemetry sources of a provider, as [Document.SetSource] names them.
const (
	SourceKVEvents = "kv_events"
	SourceLMCache  = "lmcache"
)

// Errors of a Document's methods, found by errors.Is.
var (
	// ErrNoProvider is the error of a provider that the document does not have.
	ErrNoProvider = errors.New("config: there is no such provider")
	// ErrNoRoute is the error of a new provider for a route that the document does not have, or for none of several.
	ErrNoRoute = errors.New("config: there is no such route")
	// ErrLastTarget is the error of a removal that would leave a route without a target.
	ErrLastTarget = errors.New("config: a route would be left without a target")
	// ErrNoSource is the error of a telemetry source with an unknown name.
	ErrNoSource = errors.New("config: there is no such source; there are kv_events and lmcache")
)

// Document is a configuration that a program changes: the tables and keys of a file, without its comments and without
// defaults. It checks only its form: [Parse] reads what TOML returns, and finds all that is wrong. A method that
// returns an error changes nothing. A Document is not safe for concurrent use.
type Document struct{ tree map[string]any }

// NewDocument reads a file's contents, within the bounds of a file. The error is an *Error.
func NewDocument(data []byte) (*Document, error) {
	s, p := parse(data)
	if p != nil {
		return nil, &Error{Problems: []Problem{*p}}
	}
	if s.tree == nil {
		s.tree = make(map[string]any)
	}
	return &Document{s.tree}, nil
}

// NewDocumentJSON reads the same from JSON: an object with the keys of a file. null is as if the key were not there.
func NewDocumentJSON(data []byte) (*Document, error) {
	t, err := TableJSON(data)
	if err != nil {
		return nil, err
	}
	return &Document{t}, nil
}

// Table reads a table, such as that of a provider, from the keys of TOML. The error is an *Error.
func Table(data []byte) (map[string]any, error) {
	d, err := NewDocument(data)
	if err != nil {
		return nil, err
	}
	return d.tree, nil
}

// TableJSON reads a table, such as that of a provider, from a JSON object. The error is an *Error.
func TableJSON(data []byte) (map[string]any, error) {
	bad := func(why string) error { return &Error{Problems: []Problem{{Message: why}}} }
	if len(data) > maxSize {
		return nil, bad(fmt.Sprintf("the JSON has more than %d bytes", maxSize))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var t map[string]any
	if err := d.Decode(&t); err != nil {
		return nil, bad("is not a JSON object: " + err.Error())
	}
	if d.More() || t == nil {
		return nil, bad("is not one JSON object")
	}
	if err := plainJSON(t, 0); err != nil {
		return nil, bad(err.Error())
	}
	return t, nil
}

// plainJSON puts numbers of TOML in place of those of JSON, in a table and below it, and drops nulls.
func plainJSON(t map[string]any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("is nested more than %d deep", maxDepth)
	}
	for k, v := range t {
		switch v := v.(type) {
		case nil:
			delete(t, k)
		case map[string]any:
			if err := plainJSON(v, depth+1); err != nil {
				return err
			}
		case []any:
			for i, e := range v {
				one := map[string]any{"": e}
				if err := plainJSON(one, depth+1); err != nil {
					return err
				}
				if v[i] = one[""]; v[i] == nil {
					return errors.New("has a null in an array")
				}
			}
		case json.Number:
			if n, err := v.Int64(); err == nil {
				t[k] = n
			} else if f, err := v.Float64(); err == nil {
				t[k] = f
			} else {
				return fmt.Errorf("has a number that is too large: %.40s", v)
			}
		}
	}
	return nil
}

// TOML returns the document as the contents of a file. Its keys are in the order of the alphabet.
func (d *Document) TOML() []byte {
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(d.tree); err != nil {
		// Every value that a Document is read from can be written.
		return fmt.Appendf(nil, "# %q\n", err.Error())
	}
	return b.Bytes()
}

// JSON returns the document as a JSON object.
func (d *Document) JSON() []byte { return tableJSON(d.tree) }

func tableJSON(t map[string]any) []byte {
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil { // an infinite number, which no key may have
		return fmt.Appendf(nil, "{\"error\": %q}", err.Error())
	}
	return append(b, '\n')
}

// Providers returns the names of the providers, in the order of the document.
func (d *Document) Providers() []string {
	var names []string
	for _, p := range d.tables("providers") {
		name, _ := p["name"].(string)
		names = append(names, name)
	}
	return names
}

// Provider returns a copy of the table of a provider. The error is ErrNoProvider.
func (d *Document) Provider(name string) (map[string]any, error) {
	p, err := d.provider(name)
	if err != nil {
		return nil, err
	}
	return clone(p), nil
}

// SetProvider makes table that of the provider with this name. One that is there keeps its telemetry sources, unless
// the table has them. A new one becomes a target of the routes with these models; none means that of the only route.
func (d *Document) SetProvider(name string, table map[string]any, routes ...string) error {
	table = clone(table)
	table["name"] = name
	if old, err := d.provider(name); err == nil {
		for _, source := range []string{SourceKVEvents, SourceLMCache} {
			if v, there := old[source]; there && table[source] == nil {
				table[source] = v
			}
		}
		clear(old)
		for k, v := range table {
			old[k] = v
		}
		return nil
	}
	all := d.tables("routes")
	if len(routes) == 0 {
		if len(all) != 1 {
			return fmt.Errorf("%w: there are %d routes, so name those of a new provider", ErrNoRoute, len(all))
		}
		model, _ := all[0]["model"].(string)
		routes = []string{model}
	}
	var to []map[string]any
	for _, model := range routes {
		i := slices.IndexFunc(all, func(r map[string]any) bool { return r["model"] == model })
		if i < 0 {
			return fmt.Errorf("%w: %q", ErrNoRoute, model)
		}
		to = append(to, all[i])
	}
	d.append(d.tree, "providers", table)
	for _, r := range to {
		d.append(r, "targets", map[string]any{"provider": name})
	}
	return nil
}

// RemoveProvider removes a provider, and its targets from all routes.
func (d *Document) RemoveProvider(name string) error {
	if _, err := d.provider(name); err != nil {
		return err
	}
	of := func(v any) bool {
		t, ok := v.(map[string]any)
		return ok && t["provider"] == name
	}
	for _, r := range d.tables("routes") {
		if targets, ok := r["targets"].([]any); ok && len(targets) > 0 && !slices.ContainsFunc(targets,
			func(v any) bool { return !of(v) }) {
			return fmt.Errorf("%w: %v", ErrLastTarget, r["model"])
		}
	}
	for _, r := range d.tables("routes") {
		if targets, ok := r["targets"].([]any); ok {
			r["targets"] = slices.DeleteFunc(slices.Clone(targets), of)
		}
	}
	all, _ := d.tree["providers"].([]any)
	d.tree["providers"] = slices.DeleteFunc(slices.Clone(all), func(v any) bool {
		t, ok := v.(map[string]any)
		return ok && t["name"] == name
	})
	return nil
}

// SetSource makes table that of a telemetry source of a provider: SourceKVEvents or SourceLMCache. Keys that it does
// not have get their defaults.
func (d *Document) SetSource(provider, source string, table map[string]any) error {
	p, err := d.source(provider, source)
	if err != nil {
		return err
	}
	p[source] = clone(table)
	return nil
}

// RemoveSource removes a telemetry source of a provider. One that is not there is no error.
func (d *Document) RemoveSource(provider, source string) error {
	p, err := d.source(provider, source)
	if err != nil {
		return err
	}
	delete(p, source)
	return nil
}

func (d *Document) source(provider, source string) (map[string]any, error) {
	if source != SourceKVEvents && source != SourceLMCache {
		return nil, ErrNoSource
	}
	return d.provider(provider)
}

func (d *Document) provider(name string) (map[string]any, error) {
	for _, p := range d.tables("providers") {
		if p["name"] == name {
			return p, nil
		}
	}
	return nil, ErrNoProvider
}

// tables returns the tables of an array, and leaves out all else that may be in it.
func (d *Document) tables(key string) []map[string]any {
	all, _ := d.tree[key].([]any)
	var tables []map[string]any
	for _, v := range all {
		if t, ok := v.(map[string]any); ok {
			tables = append(tables, t)
		}
	}
	return tables
}

func (d *Document) append(t map[string]any, key string, v map[string]any) {
	all, _ := t[key].([]any)
	t[key] = append(slices.Clone(all), v)
}

// clone copies a table and those in it.
func clone(t map[string]any) map[string]any {
	c := make(map[string]any, len(t))
	for k, v := range t {
		if in, ok := v.(map[string]any); ok {
			v = clone(in)
		}
		c[k] = v
	}
	return c
}
