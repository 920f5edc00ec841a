// Package kvindex knows which targets hold how many of a prompt's KV blocks, as
// the engines' own events say.
//
// [Decode] reads the messages of vLLM, SGLang and compatible engines, in all of
// their forms. [Index.Apply] applies them target by target, in order, and
// [Index.Match] returns how many leading tokens of a prompt each target can reuse.
//
// Prompts are matched by their tokens. An engine's block hashes only find its
// blocks again, so no hash algorithm, seed or block size has to agree with
// anything, and the names that two targets or two models give blocks never mix.
// Token ids have to come from the engine's own tokenizer and chat template.
//
// Match takes no lock and never waits for Apply. For a target without a trusted
// stream it returns -1, for one that holds no block 0.
package kvindex

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/internal/idmemo"
)

// Config configures an Index. The zero Config has the documented defaults.
type Config struct {
	// MaxBlocks is the greatest number of blocks that are kept for one target.
	// Beyond it the prompts that were stored, or extended, least recently lose
	// their last blocks first. 0 means 1,000,000. A duplicate copy, and a block
	// that is resident in several groups or media, counts once.
	MaxBlocks int
	// MaxOrphans is the greatest number of blocks of one target that are kept
	// though the block before them is not known; the oldest go first. 0 means
	// 65,536.
	MaxOrphans int
	// Set says that one Removed ends all copies of a block. By default copies are
	// counted, as vLLM announces each removal of a physical copy.
	Set bool
	// HostCredit is the worth of a block that is resident in the host's memory alone,
	// as a share of one on the device: 0, the default, ignores the host's memory, and
	// 1 counts both alike. Match rounds the sum down to whole blocks. It is between 0
	// and 1, and targets with sliding windows have none.
	HostCredit float64
	// StorageCredit is the same of a block that is on a disk, or in a medium of another name, and
	// RemoteCredit that of one on another machine. A block in several media counts by the greatest.
	StorageCredit, RemoteCredit float64
	// Recompute is the number of blocks at the end of a reused part that the targets compute again all
	// the same: 1 in vLLM up to 0.32 with EAGLE or MTP, which is not in the events. 0, the default,
	// learns it for each target from Report; less than 0 means none. At most MaxRecompute.
	Recompute int
	// Adapters maps names of LoRA adapters that prompts have, as Adapter or else as Model, to those
	// that engines have for them in their events: "id:N" for an engine that sends a number alone.
	Adapters map[string]string
	// Trace reports gaps, restarts and block sizes of the targets' streams.
	Trace Trace
}

// Trace has hooks, each of which may be nil. They are called by the goroutine
// that calls Apply, Reset and so on, after the call has done its work, and
// without a lock: they may call the Index.
type Trace struct {
	// Gap reports a message that did not follow the last one.
	Gap func(id string, last, seq uint64)
	// Restart reports a sequence that started over.
	Restart func(id string, last, seq uint64)
	// BlockSize reports that the target's blocks have another size now, in tokens. All
	// that was known of the target is void then.
	BlockSize func(id string, was, is int)
	// Adapter reports a LoRA adapter with which the target has just computed blocks: it is loaded there. It is called
	// once for each run of a message's events with one adapter. An engine that gives a number alone is not reported.
	Adapter func(id, adapter string)
	// Foreign reports, once, that the events of a target are of unknown types. The target is
	// not trusted until one is understood.
	Foreign func(id string)
}

// ErrGap is returned by Apply for a message that does not follow the last one.
var ErrGap = errors.New("kvindex: messages are missing before this one")

// ErrTooManyTargets is returned by Apply for a target beyond the 65,536th.
var ErrTooManyTargets = errors.New("kvindex: too many targets")

const maxTargets = 1 << 16

// Index is the index. Its methods are safe for concurrent use. Match, Trusted,
// BlockSize and Last never wait; the others wait for one another. The messages of
// one target must be applied one after another, in their order.
type Index struct {
	cfg     Config
	secrets *secrets
	credits [tiers]float64 // the worth of a block in each medium

	// Read without a lock.
	roots   node                               // its children are the roots, by key
	states  atomic.Pointer[[]atomic.Uint64]    // by slot
	shapes  atomic.Pointer[[]shape]            // of the targets
	named   atomic.Pointer[map[string]bool]    // adapters in events; never changed, replaced
	renames atomic.Bool                        // adapters may have other names in events than in prompts
	gen     atomic.Uint64                      // of ids
	known   idmemo.Memo[resolution]            // of Match
	ids     atomic.Pointer[map[string]*target] // never changed, replaced

	mu      sync.Mutex
	slots   []*target // nil: vacant
	vacant  []uint32
	uses    map[shape]int // targets of each shape
	nodes   int
	spare   spare
	touched uint64   // keeps loads that are made for their own sake
	waiting []uint64 // hashes for which orphans wait, of the event that is being applied
	keys    []uint64 // scratch: the fingerprints of an event's blocks
	ahead   []uint32 // scratch: the tokens of a block and those after it
	lost    Counters // of targets that were forgotten

	between func() // runs in tests where Apply has given up the lock
}

// WithDefaults returns c with each zero field that has a default replaced by it.
func (c Config) WithDefaults() Config {
	if c.MaxBlocks == 0 {
		c.MaxBlocks = 1_000_000
	}
	if c.MaxOrphans == 0 {
		c.MaxOrphans = 1 << 16
	}
	return c
}

func (c Config) validate() error {
	bad := configerr.List{Package: "kvindex"}
	bad.Check(c.MaxBlocks >= 0 && c.MaxBlocks <= maxBlocks, "MaxBlocks", c.MaxBlocks,
		fmt.Sprintf("between 0 and %d", maxBlocks))
	bad.Check(c.MaxOrphans >= 0, "MaxOrphans", c.MaxOrphans, "at least 0")
	credit := func(name string, v float64) {
		bad.Check(v >= 0 && v <= 1, name, v, "between 0 and 1") // NaN is neither
	}
	credit("HostCredit", c.HostCredit)
	credit("StorageCredit", c.StorageCredit)
	credit("RemoteCredit", c.RemoteCredit)
	bad.Check(c.Recompute <= MaxRecompute, "Recompute", c.Recompute, fmt.Sprintf("at most %d", MaxRecompute))
	return bad.Err()
}

// New returns an empty Index. The error has a *router.ConfigError for each
// field of cfg with a value that is not allowed.
func New(cfg Config) (*Index, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	x := &Index{cfg: cfg, secrets: newSecrets(), uses: make(map[shape]int)}
	x.credits = [tiers]float64{Device: 1, Host: cfg.HostCredit, Storage: cfg.StorageCredit, Remote: cfg.RemoteCredit}
	x.states.Store(new([]atomic.Uint64))
	x.shapes.Store(new([]shape))
	x.named.Store(&map[string]bool{})
	x.renames.Store(len(cfg.Adapters) > 0)
	x.ids.Store(&map[string]*target{})
	return x, nil
}

// maxBlocks keeps the numbers of holds within their bits even if every block has a
// hold of its own.
const maxBlocks = 1 << 24

// Apply applies one message of a target. The first may have any seq. The one after
// the last is applied. A later one is ErrGap: nothing of it is applied, and the
// target is not trusted until all up to it has been applied, or Reset is called.
// One at or below the last means that the engine started over: the blocks that the
// target held are forgotten, then it is applied. A caller that merges a replay with
// live messages drops the duplicates before.
//
// Apply lets other calls in between the events of a message. If one of them is
// Reset or Forget for this target, the rest of the message is dropped.
//
// Apply keeps no part of b.
func (x *Index) Apply(id string, seq uint64, b Batch) error {
	x.mu.Lock()
	t, err := x.admit(id)
	if err != nil {
		x.mu.Unlock()
		return err
	}
	last, was := t.last, t.shape
	restarted := t.begun && seq <= last
	switch {
	case restarted:
		t.counts.Restarts++
		x.restart(t)
	case t.begun && seq-last > 1:
		t.counts.Gaps++
		if !t.missing || seq > t.until {
			t.until = seq
		}
		t.missing = true
		x.announce(t)
		x.mu.Unlock()
		if f := x.cfg.Trace.Gap; f != nil {
			f(id, last, seq)
		}
		return ErrGap
	}
	t.begun, t.last = true, seq
	if t.missing && seq >= t.until {
		t.missing = false
	}
	t.counts.Batches++
	t.counts.UnknownEvents += b.UnknownEvents
	t.counts.UnknownKeys += b.UnknownKeys
	t.counts.UnknownTokens += b.UnknownTokens
	t.known = t.known || slices.ContainsFunc(b.Events, func(e Event) bool { return e.Kind != 0 })
	foreign := b.UnknownEvents > 0 && !t.foreign && !t.known
	t.foreign = t.foreign || b.UnknownEvents > 0
	if !x.events(t, b.Events) {
		x.mu.Unlock()
		return nil
	}
	t.applied.Store(seq)
	t.any.Store(true)
	x.announce(t)
	is := t.shape
	x.mu.Unlock()
	if f := x.cfg.Trace.Restart; f != nil && restarted {
		f(id, last, seq)
	}
	if f := x.cfg.Trace.Foreign; f != nil && foreign {
		f(id)
	}
	if f := x.cfg.Trace.Adapter; f != nil {
		b.adapters(id, f)
	}
	if f := x.cfg.Trace.BlockSize; f != nil && was != 0 && is != 0 && is != was {
		f(id, was.size(), is.size())
	}
	return nil
}

// atOnce is the number of blocks after which the events of a message let others
// have the lock: about 100 us.
const atOnce = 512

// events applies the events of a message. It returns false if the target was reset
// or forgotten meanwhile.
func (x *Index) events(t *target, events []Event) bool {
	life, done := t.life, 0
	for i := range events {
		if done >= atOnce {
			done = 0
			x.mu.Unlock()
			if x.between != nil {
				x.between()
			}
			x.mu.Lock()
			if t.life != life {
				return false
			}
		}
		x.event(t, &events[i])
		done += 1 + len(events[i].Hashes)
	}
	return true
}

// event applies one event.
func (x *Index) event(t *target, e *Event) {
	t.counts.Events++
	switch e.Kind {
	case Stored:
		x.stored(t, e)
	case Removed:
		x.removed(t, e)
	case Cleared:
		t.counts.Cleared++
		if e.Partly {
			x.clearPart(t, e)
		} else {
			x.clear(t)
		}
	case Moved:
		x.moved(t, e)
	default:
		t.counts.UnknownEvents++
	}
}

// Reset forgets the blocks of a target with a cache that is lost or unknown. Any
// seq may follow. It is trusted again when one batch, even an empty one, has been
// applied. A target that is not known stays so.
func (x *Index) Reset(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := (*x.ids.Load())[id]; t != nil {
		t.begun = false
		t.any.Store(false)
		t.counts.Resets++
		x.announce(t) // before the work, so that no reader sees half of it
		x.restart(t)
		x.announce(t)
	}
}

// Suspend sets whether the target's stream is out of touch: while it is, Match
// returns -1. The target's blocks are kept, and Apply goes on as ever. Reset ends
// it, and so does a sequence that starts over. A target that is not known yet can be
// suspended before its first message, so that nothing of a replay is believed
// before the replay is over; it is known from then on, until Forget.
func (x *Index) Suspend(id string, out bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := (*x.ids.Load())[id]
	if t == nil && out {
		t, _ = x.admit(id) // if there is no place, Apply reports it
	}
	if t != nil {
		t.suspended = out
		x.announce(t)
	}
}

// Forget removes a target that left permanently, with all its data.
func (x *Index) Forget(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := (*x.ids.Load())[id]
	if t == nil {
		return
	}
	t.begun = false
	t.any.Store(false)
	x.announce(t)
	ids := make(map[string]*target, len(*x.ids.Load()))
	for k, v := range *x.ids.Load() {
		if k != id {
			ids[k] = v
		}
	}
	x.ids.Store(&ids)
	x.gen.Add(1)
	x.restart(t)
	x.announce(t)
	x.lost.add(t.counts)
	x.slots[t.slot] = nil
	x.vacant = append(x.vacant, t.slot)
}

// Trusted reports whether Match returns more than -1 for the target: its messages
// come without a gap, and at least one event was understood, if there were any.
func (x *Index) Trusted(id string) bool {
	t := (*x.ids.Load())[id]
	return t != nil && (*x.states.Load())[t.slot].Load()&stateTrusted != 0
}

// BlockSize returns the number of tokens of the target's blocks; 0 until one is
// known.
func (x *Index) BlockSize(id string) int {
	t := (*x.ids.Load())[id]
	if t == nil {
		return 0
	}
	return shape((*x.states.Load())[t.slot].Load() >> stateShape).size()
}

// Last returns the sequence number of the last message of which all events are
// applied to the target; ok is false if there is none since New or Reset.
func (x *Index) Last(id string) (seq uint64, ok bool) {
	t := (*x.ids.Load())[id]
	if t == nil || !t.any.Load() {
		return 0, false
	}
	return t.applied.Load(), true
}

const noGroup = math.MinInt32
