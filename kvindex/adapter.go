package kvindex

import (
	"maps"
	"strings"
)

// maxNamed bounds the names of adapters in events that are kept.
const maxNamed = 4096

// noteAdapter keeps the name of an adapter that an event has.
func (x *Index) noteAdapter(name string) {
	if name == "" {
		return
	}
	named := *x.named.Load()
	if named[name] || len(named) >= maxNamed {
		return
	}
	named = maps.Clone(named)
	named[name] = true
	x.named.Store(&named)
	x.renames.Store(true)
}

// adapterOf returns the name that engines have for a prompt's adapter in their events.
// SGLang takes "base:adapter" as the model, after the whole of its own served name, which
// may have colons too (0.5.23, srt/entrypoints/openai/serving_base.py
// _parse_model_parameter); its events have "adapter".
func (x *Index) adapterOf(adapter, model string) string {
	name := adapter
	if name == "" {
		name = model
	}
	if a, ok := x.cfg.Adapters[name]; ok {
		return a
	}
	named := *x.named.Load()
	if adapter != "" && named[adapter] {
		return adapter
	}
	for at := strings.IndexByte(name, ':'); at >= 0; {
		name = name[at+1:]
		if a := strings.TrimSpace(name); named[a] {
			return a
		}
		at = strings.IndexByte(name, ':')
	}
	return adapter
}

// adapters calls f for each run of Stored events with one named adapter.
func (b *Batch) adapters(id string, f func(id, adapter string)) {
	last := ""
	for i := range b.Events {
		e := &b.Events[i]
		if e.Kind != Stored {
			continue
		}
		if e.Adapter != last && e.Adapter != "" && !strings.HasPrefix(e.Adapter, "id:") {
			f(id, e.Adapter)
		}
		last = e.Adapter
	}
}
