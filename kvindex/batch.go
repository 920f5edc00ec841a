package kvindex

import "strconv"

// Batch holds the events of one message of an engine's stream, which is one
// scheduler step. The zero Batch is empty; to [Index.Apply] it is a sign of life.
//
// A Batch that [Decode] returned owns its memory: it keeps no part of the payload.
// One that [Batch.Decode] filled is overwritten by the next call of it.
type Batch struct {
	// Time is when the engine made the batch, in seconds since 1970 by its own
	// clock; 0 if it did not say.
	Time float64
	// Rank is the data-parallel rank that sent the batch, -1 if it did not say.
	Rank int
	// Events are in the order in which they happened.
	Events []Event
	// UnknownEvents and UnknownKeys count events and keys that were skipped because this
	// package does not know them. UnknownTokens counts events with tokens that could not be
	// read as such; they are kept without them.
	UnknownEvents, UnknownKeys, UnknownTokens int

	words  []uint64 // the memory of Hashes, Sums and Extra
	tokens []uint32 // the memory of Tokens and After
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	Stored  EventKind = iota + 1 // blocks became resident
	Removed                      // copies of blocks went
	Cleared                      // all blocks went, or all of one part of the cache
	Moved                        // copies of blocks went from one medium to another
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
	case Moved:
		return "moved"
	}
	return "event_" + strconv.Itoa(int(k))
}

// Medium is the kind of memory that blocks are in, or were.
type Medium uint8

// The media that are distinguished. Every other one that an engine names is Storage.
const (
	Device  Medium = iota // the accelerator's own memory, which is meant by an engine that names none
	Host                  // the CPU's memory
	Storage               // disks, anything else
	Remote                // other machines, and pools that machines share
)

// tiers is the number of media.
const tiers = int(Remote) + 1

// Spec is the kind of attention that a group of layers has.
type Spec uint8

// The kinds that are distinguished.
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
	Medium Medium // of a Moved, the one that the copies are in now
	From   Medium // of a Moved, the one that they were in before
	Spec   Spec
	Reused bool // a block that was there before is announced again
	// Partly says that a Cleared ends the blocks of Medium alone.
	Partly bool
	// Pairs says that the engine's blocks are made of pairs of neighbouring
	// tokens (EAGLE): n pairs cover n + 1 tokens, and Tokens has that one more.
	Pairs bool
	// Ahead is the number of tokens after a block that the block's hash covers; at most
	// MaxAhead.
	Ahead uint8
	// HasParent says whether the blocks follow Parent; else they begin a prompt.
	HasParent bool
	// Group is the cache group, -1 if the engine did not report it. A Cleared with a Group of 0 or
	// more ends the blocks of that group alone, if Partly is set.
	Group int32
	// Window is the sliding window in tokens, 0 if the engine did not report it.
	Window int32
	// BlockSize is the number of tokens of a block, 0 if the engine did not
	// report it.
	BlockSize int32

	Parent, ParentSum uint64
	// Hashes are the blocks: an integer as it is, in two's complement, and bytes
	// by their last 8, big-endian, which is the integer that the same engine
	// would send. Sums are nil if all were integers; else for each block a
	// fingerprint of all of its bytes, 0 for an integer.
	Hashes, Sums []uint64
	// Tokens are those of the blocks, one after another; nil if the engine did not
	// say.
	Tokens []uint32
	// After has Ahead tokens for each block: those that follow it.
	After []uint32
	// Extra has for each block a fingerprint of all that distinguishes it but its
	// tokens and After (images, embeddings, lists of tokens of unknown use), 0 for nothing; nil if
	// no block has any.
	Extra []uint64
	// Left are the copies that are left of each block of a Removed; nil if the engine
	// did not say.
	Left []uint64
	// Adapter is the LoRA adapter's name, "id:N" if the engine gave only a number,
	// "" for none. Salt is the cache salt, if the event has it.
	Adapter, Salt string
}
