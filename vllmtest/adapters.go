package vllmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	pathLoad   = "/v1/load_lora_adapter"
	pathUnload = "/v1/unload_lora_adapter"

	maxServed = 4096 // adapters of a replica
	maxInfos  = 1024 // lines of vllm:lora_requests_info
)

// served are the adapters that requests may name.
type served struct {
	mu    sync.Mutex
	first []string
	names []string
}

func newServed(names []string) *served { return &served{first: names, names: slices.Clone(names)} }

func (a *served) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names)
}

func (a *served) has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.names, name)
}

// reset takes back what was loaded and unloaded.
func (a *served) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = slices.Clone(a.first)
}

func (a *served) load(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.names, name) {
		return badRequest("The lora adapter '%s' has already been loaded.", name)
	}
	if len(a.names) >= maxServed {
		return badRequest("there are %d adapters already", maxServed)
	}
	a.names = append(a.names, name)
	return nil
}

func (a *served) unload(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.names, name)
	if i < 0 {
		return &requestError{http.StatusNotFound, fmt.Sprintf("The lora adapter '%s' cannot be found.", name)}
	}
	a.names = slices.Delete(a.names, i, i+1)
	return nil
}

// loadAdapter answers pathLoad, with vLLM's words.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	s.changeAdapters(w, r, func(name, path string) (string, error) {
		switch {
		case name == "" || path == "":
			return "", badRequest("Both 'lora_name' and 'lora_path' must be provided.")
		case name == s.cfg.modelName():
			return "", badRequest("The lora adapter '%s' has the name of the model.", name)
		}
		return fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", name), s.cfg.served.load(name)
	})
}

// unloadAdapter answers pathUnload.
func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	s.changeAdapters(w, r, func(name, _ string) (string, error) {
		if name == "" {
			return "", badRequest("'lora_name' needs to be provided to unload a LoRA adapter.")
		}
		if err := s.cfg.served.unload(name); err != nil {
			return "", err
		}
		for _, e := range s.current().engines {
			e.mu.Lock()
			e.sched.slots.drop(name)
			e.mu.Unlock()
		}
		return fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", name), nil
	})
}

func (s *Server) changeAdapters(w http.ResponseWriter, r *http.Request,
	change func(name, path string) (string, error)) {
	if !s.spoil(w, r, s.current(), s.fault(false)) {
		return
	}
	raw, err := s.readBody(w, r, nil)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	var b struct {
		Name string `json:"lora_name"`
		Path string `json:"lora_path"`
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		s.refuse(w, r, badRequest("the body is not understood: %v", err))
		return
	}
	said, err := change(b.Name, b.Path)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	_, _ = w.Write([]byte(said))
}

// slots are the adapters that a rank has loaded, the least recently used first.
type slots struct {
	loaded []string
	loads  uint64
	infos  []info // each that ever was, as the client library of vLLM keeps them
}

// info is one set of labels of vllm:lora_requests_info, and when it was the state last.
type info struct {
	running, waiting string
	at               time.Time
}

func (l *slots) drop(name string) {
	l.loaded = slices.DeleteFunc(l.loaded, func(n string) bool { return n == name })
}

// touch makes an adapter, if it is loaded, the one used last.
func (l *slots) touch(name string) {
	if i := slices.Index(l.loaded, name); i >= 0 {
		l.loaded = append(slices.Delete(l.loaded, i, i+1), name)
	}
}

// slotFor reports whether s can be scheduled by its adapter.
func (c *scheduler) slotFor(s *seq) bool {
	if c.cfg.MaxLoras == 0 || s.adapter == "" || slices.Contains(c.slots.loaded, s.adapter) {
		return true
	}
	return len(c.slots.loaded) < c.cfg.MaxLoras || c.evictable() >= 0
}

// evictable returns the index of the adapter to evict, -1 if all have requests in the batch.
func (c *scheduler) evictable() int {
	return slices.IndexFunc(c.slots.loaded, func(name string) bool {
		return !slices.ContainsFunc(c.running, func(s *seq) bool { return s.adapter == name })
	})
}

// use makes the adapter of s, which has a slot or can have one, the one used last. It reports whether it is loaded for
// that.
func (c *scheduler) use(s *seq) (loads bool) {
	if c.cfg.MaxLoras == 0 || s.adapter == "" {
		return false
	}
	l := &c.slots
	if slices.Contains(l.loaded, s.adapter) {
		l.touch(s.adapter)
		return false
	}
	if len(l.loaded) >= c.cfg.MaxLoras {
		if i := c.evictable(); i >= 0 {
			l.loaded = slices.Delete(l.loaded, i, i+1)
		}
	}
	l.loaded = append(l.loaded, s.adapter)
	l.loads++
	return true
}

// inform notes which adapters have requests now.
func (c *scheduler) inform(now time.Time) {
	if c.cfg.MaxLoras == 0 {
		return
	}
	names := func(seqs []*seq) string {
		var all []string
		for _, s := range seqs {
			if s.adapter != "" && !slices.Contains(all, s.adapter) {
				all = append(all, s.adapter)
			}
		}
		return strings.Join(all, ",")
	}
	is := info{names(c.running), names(c.waiting), now}
	l := &c.slots
	for i := range l.infos {
		if x := &l.infos[i]; x.running == is.running && x.waiting == is.waiting {
			x.at = now
			return
		}
	}
	if len(l.infos) >= maxInfos {
		l.infos = slices.Delete(l.infos, 0, 1)
	}
	l.infos = append(l.infos, is)
}

// adapters writes the lines about adapters as vLLM does: without the engine and the model.
func (p *page) adapters(cfg *Config, s *snapshot) {
	if cfg.MaxLoras == 0 {
		return
	}
	p.head("vllm:lora_requests_info", "gauge", "Running stats on lora requests.")
	for _, x := range s.infos {
		p.b = append(p.b, `vllm:lora_requests_info{max_lora="`+strconv.Itoa(cfg.MaxLoras)+`",running_lora_adapters="`+
			escapeLabel(x.running)+`",waiting_lora_adapters="`+escapeLabel(x.waiting)+`"} `...)
		p.b = append(strconv.AppendFloat(p.b, float64(x.at.UnixNano())/1e9, 'e', -1, 64), '\n')
	}
	if !cfg.ReportLoaded {
		return
	}
	p.head("vllm:lora_adapter_loaded", "gauge", "Adapters in the slots.")
	for _, name := range s.loaded {
		p.b = append(p.b, `vllm:lora_adapter_loaded{adapter_name="`+escapeLabel(name)+`",level="gpu",pinned="false"} 1.0`...)
		p.b = append(p.b, '\n')
	}
}
