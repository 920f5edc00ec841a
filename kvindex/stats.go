package kvindex

// Counters count events and blocks of one target, or of all, since New; forgotten
// targets count on in those of all. Their unit is events unless the comment says
// blocks.
type Counters struct {
	Batches, Events int
	Stored, Removed int // blocks, by events of any group and medium
	Cleared         int // AllBlocksCleared
	Duplicates      int // blocks of which one more copy was stored
	Orphaned        int // blocks that came before the block they follow
	Adopted         int // orphans that found their place
	OrphansDropped  int // orphans that never will
	Unplaced        int // blocks that came without tokens and are not known
	UnknownRemoved  int // removals of unknown blocks
	Healed          int // blocks that had seemed gone and were named as a parent
	Moved           int // blocks with a hash that the engine gave to another block
	Evicted         int // blocks that went because of MaxBlocks
	Partial         int // stores of parts of blocks
	Reshaped        int // times that the size of the blocks, or the group that decides, changed
	OtherMedia      int // events of media that are not indexed
	OtherGroups     int // events of groups that are not indexed
	Gaps            int // messages that were refused with ErrGap
	Restarts        int // sequences that started over
	Resets          int // calls of Reset

	UnknownEvents, UnknownKeys, UnknownTokens int // as in Batch
}

func (c *Counters) add(d Counters) {
	c.Batches += d.Batches
	c.Events += d.Events
	c.Stored += d.Stored
	c.Removed += d.Removed
	c.Cleared += d.Cleared
	c.Duplicates += d.Duplicates
	c.Orphaned += d.Orphaned
	c.Adopted += d.Adopted
	c.OrphansDropped += d.OrphansDropped
	c.Unplaced += d.Unplaced
	c.UnknownRemoved += d.UnknownRemoved
	c.Healed += d.Healed
	c.Moved += d.Moved
	c.Evicted += d.Evicted
	c.Partial += d.Partial
	c.Reshaped += d.Reshaped
	c.OtherMedia += d.OtherMedia
	c.OtherGroups += d.OtherGroups
	c.Gaps += d.Gaps
	c.Restarts += d.Restarts
	c.Resets += d.Resets
	c.UnknownEvents += d.UnknownEvents
	c.UnknownKeys += d.UnknownKeys
	c.UnknownTokens += d.UnknownTokens
}

// Stats is the size of an Index and its Counters.
type Stats struct {
	Targets int // known ones
	Trusted int // those with a stream that can be trusted now
	Blocks  int // resident, each once for each target that holds it
	Orphans int // blocks
	Nodes   int // runs of blocks, which targets share
	Counters
}

// TargetStats is the state of one target and its Counters.
type TargetStats struct {
	Trusted   bool
	Begun     bool   // a message was applied since New or Reset
	Last      uint64 // its sequence number, if Begun
	BlockSize int    // tokens, 0 until one is known
	Blocks    int    // resident
	Orphans   int    // blocks
	Counters
}

// Stats returns the size of the Index. Its time grows with the targets.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := Stats{Nodes: x.nodes, Counters: x.lost}
	for _, t := range x.slots {
		if t == nil {
			continue
		}
		s.Targets++
		if t.trusted() {
			s.Trusted++
		}
		s.Blocks += t.blocks
		s.Orphans += t.orphans.blocks
		s.add(t.counts)
	}
	return s
}

// Target returns the state of one target; ok is false for an unknown one.
func (x *Index) Target(id string) (s TargetStats, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := (*x.ids.Load())[id]
	if t == nil {
		return s, false
	}
	return TargetStats{
		Trusted: t.trusted(), Begun: t.any.Load(), Last: t.applied.Load(), BlockSize: t.shape.size(),
		Blocks: t.blocks, Orphans: t.orphans.blocks, Counters: t.counts,
	}, true
}

func (t *target) trusted() bool {
	return t.begun && !t.missing && !t.suspended && (!t.foreign || t.known)
}
