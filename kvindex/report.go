package kvindex

// MaxRecompute is the greatest number of blocks of Config.Recompute.
const MaxRecompute = 4

// learnAfter is the number of reports in a row that must differ alike from the blocks
// that are held before Recomputed changes.
const learnAfter = 3

// report is what the latest reports of a target have in common.
type report struct {
	short int // blocks fewer than held
	n     int // reports in a row
}

// Report compares the leading tokens of a prompt that a target held with those that its
// engine reported as cached. held is the result of Match for the target when the request
// was sent, with Recomputed added; 0 of either says nothing. If three reports of a target in
// a row are short of it by the same number of blocks, Recomputed becomes that number.
// Config.Recompute ends the learning.
//
// vLLM up to 0.32.0 with EAGLE or MTP drops the last block of each hit
// (v1/core/single_type_kv_cache_manager.py, find_longest_cache_hit); its events do not show it.
func (x *Index) Report(id string, held, reported int) {
	t := (*x.ids.Load())[id]
	if t == nil || x.cfg.Recompute != 0 || held <= 0 || reported <= 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	size := t.shape.size()
	if size == 0 || held%size != 0 || reported%size != 0 {
		return
	}
	short := (held - reported) / size
	if short != t.report.short {
		t.report = report{short: short}
	}
	t.report.n = min(t.report.n+1, learnAfter)
	if t.report.n == learnAfter && short != t.again && short >= 0 && short <= MaxRecompute {
		t.again = short
		x.announce(t)
	}
}

// Recomputed returns the number of tokens at the end of a reused part that the target
// computes again all the same, by Config.Recompute or as learned.
func (x *Index) Recomputed(id string) int {
	t := (*x.ids.Load())[id]
	if t == nil {
		return 0
	}
	s := (*x.states.Load())[t.slot].Load()
	return again(s) * shape(s>>stateShape).size()
}
