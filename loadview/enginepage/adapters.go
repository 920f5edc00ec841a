package enginepage

import (
	"strconv"
	"strings"

	"github.com/warmroute/router/internal/samples"
)

// Adapters is what a page says of LoRA adapters.
type Adapters struct {
	// Slots is the number of adapters that the engine keeps loaded; 0: the page does not report it.
	Slots int
	// Running have requests in the batch, Waiting have others: the latest report of them. Adapters without a request
	// are in neither, loaded or not.
	Running, Waiting []string
	// Loaded are those in the engine's slots, all of them if Exact is set. Few engines report them.
	Loaded []string
	Exact  bool
}

// Adapters returns the adapters of all engines of the page together, by the first dialect of which the page has any;
// nil if it reports none, nor any slots.
func (p Page) Adapters() *Adapters {
	for i := range p.table.dialects {
		if a := p.families.adapters(&p.table.dialects[i]); a != nil {
			return a
		}
	}
	return nil
}

func (f families) adapters(d *Dialect) *Adapters {
	var newest *samples.Sample
	for i := range f[d.AdapterRequests.Name] {
		// Each set of labels that ever was stays on vLLM's page, with the time when it was.
		if m := &f[d.AdapterRequests.Name][i]; newest == nil || m.Value >= newest.Value {
			newest = m
		}
	}
	loaded := f[d.AdapterLoaded.Name]
	if newest == nil && len(loaded) == 0 {
		return nil
	}
	a := &Adapters{Exact: len(loaded) > 0}
	if newest != nil {
		if n, err := strconv.Atoi(newest.Label("max_lora")); err == nil && n > 0 {
			a.Slots = n
		}
		a.Running, a.Waiting = names(newest.Label("running_lora_adapters")), names(newest.Label("waiting_lora_adapters"))
	}
	for i := range loaded {
		m := &loaded[i]
		if level := m.Label("level"); m.Value > 0 && (level == "" || level == "gpu") {
			a.Loaded = append(a.Loaded, m.Label("adapter_name"))
		}
	}
	return a
}

// names returns the names of a list with commas.
func names(list string) (all []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}
