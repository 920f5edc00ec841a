package kvindex

import "strconv"

// Batch is what one message of an engine's stream says: the events of one
// scheduler step. The zero Batch is an empty one, which [Index.Apply] takes as
// a sign of life.
//
// A Batch that [Decode] made owns its memory: it keeps nothing of the payload.
// One that [Batch.Decode] filled is overwritten by the next call of it.
type Batch struct {
	// Time is when the engine made the batch, in seconds since 1970 by its own
	// clock; 0 where it did not say.
	Time float64
	// Rank is the data-parallel rank that sent the batch, -1 where it did not
	// say.
	Rank int
	// Events are in the order in which they happened.
	Events []Event
	// UnknownEvents and UnknownKeys count what was skipped because this package
	// does not know it. UnknownTokens counts events whose tokens could not be
	// read as such; they are kept without them.
	UnknownEvents, UnknownKeys, UnknownTokens int

	words  []uint64 // what Hashes, Sums and Extra are cut from
	tokens []uint32 // what Tokens are cut from
}

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	Stored  EventKind = iota + 1 // blocks became resident
	Removed                      // copies of blocks went
	Cleared                      // all blocks went
)

// String returns the kind's name in snake case.
func (k EventKind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Removed:
		return "removed"
	case Cleared:
		return "cleared"
	}
	return "event_" + strconv.Itoa(int(k))
}

// Medium is where blocks are, or were.
type Medium uint8

// The media that are told apart. Whatever else an engine names is Storage.
const (
	Device  Medium = iota // the accelerator's own memory; what an engine that names none means
	Host                  // the CPU's memory
	Storage               // disks, other machines, anything else
)

// Spec is the kind of attention that a group of layers has.
type Spec uint8

// The kinds that are told apart.
const (
	SpecNone    Spec = iota // the engine did not say
	SpecFull                // every token sees all before it
	SpecSliding             // a token sees a window of those before it
	SpecOther               // anything else; not indexed
)

// Event is one change of an engine's cache. Hashes are the engine's own names
// for its blocks. They are handles, and nothing is computed from them.
type Event struct {
	Kind   EventKind
	Medium Medium
	Spec   Spec
	Reused bool // a block that had been there is told of again
	// Pairs says that the engine's blocks are made of pairs of neighbouring
	// tokens (EAGLE): n pairs cover n + 1 tokens, and Tokens has that one more.
	Pairs bool
	// HasParent says whether the blocks follow Parent; else they begin a prompt.
	HasParent bool
	// Group is the cache group, -1 where the engine did not say.
	Group int32
	// Window is the sliding window in tokens, 0 where the engine did not say.
	Window int32
	// BlockSize is the number of tokens of a block, 0 where the engine did not
	// say.
	BlockSize int32

	Parent, ParentSum uint64
	// Hashes are the blocks: an integer as it is, in two's complement, and bytes
	// by their last 8, big-endian, which is the integer that the same engine
	// would send. Sums are nil where all were integers; else for each block a
	// fingerprint of all of its bytes, 0 for an integer.
	Hashes, Sums []uint64
	// Tokens are those of the blocks, one after another; nil where the engine
	// did not say.
	Tokens []uint32
	// Extra holds for each block a fingerprint of what distinguishes it beside its
	// tokens (images, embeddings), 0 for nothing; nil where no block has any.
	Extra []uint64
	// Left are the copies that are left of each block of a Removed; nil where
	// the engine did not say.
	Left []uint64
	// Adapter is the LoRA adapter's name, "id:N" where the engine gave only a
	// number, "" for none. Salt is the cache salt, where the event says it.
	Adapter, Salt string
}
