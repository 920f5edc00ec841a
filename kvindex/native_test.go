package kvindex

import "testing"

// TestTensorRT: TensorRT-LLM's own events.
func TestTensorRT(t *testing.T) {
	block := func(hash any, level int, tokens []int, more ...any) fieldsOf {
		var list []any
		for _, id := range tokens {
			list = append(list, fieldsOf{"type", "unique_token", "token_id", id, "token_extra_id", 0})
		}
		e := fieldsOf{"type", "stored_block", "block_hash", hash, "tokens", list, "cache_level", level, "priority", 35}
		return append(e, more...)
	}
	updated := func(hash, level, priority any) fieldsOf {
		return fieldsOf{"event_id", 8, "window_size", 4096, "data", fieldsOf{
			"type", "updated", "block_hash", hash, "cache_level", level, "priority", priority,
		}}
	}
	diff := func(is, was int) fieldsOf { return fieldsOf{"type", "event_diff", "new_value", is, "old_value", was} }
	event := func(data ...any) fieldsOf {
		return fieldsOf{"event_id", 7, "data", fieldsOf(data), "window_size", 4096}
	}
	stored := func(parent any, blocks ...any) fieldsOf {
		return event("type", "stored", "parent_hash", parent, "blocks", blocks)
	}
	p := text(ids(1000, 1048), 1)
	w := newWired(t, Config{HostCredit: 1})
	w.say(event("type", "created", "num_blocks_per_cache_level", []int{100, 20}))
	w.say(stored(nil, block(1, 0, ids(1000, 1016)), block("5e", 0, ids(1016, 1032)), block(9, 0, ids(1032, 1037))))
	w.cached(32, p)
	w.say(stored("5e", block(3, 0, ids(1032, 1048))))
	w.cached(48, p)
	w.say(updated(3, diff(1, 0), nil))
	w.cached(48, p)
	w.say(updated(3, nil, diff(1, 2)))
	w.cached(48, p)
	w.say(event("type", "removed", "block_hashes", []any{3}))
	w.cached(32, p)
	// Another window is another group.
	other := stored(nil, block(1, 0, ids(1000, 1016)))
	other[5] = 512
	w.say(other)
	other = event("type", "removed", "block_hashes", []any{1})
	other[5] = 512
	w.say(other)
	w.cached(32, p)
	// These fields distinguish blocks as their tokens do.
	image := []any{fieldsOf{"type", "mm_key", "hash", "ff", "start_offset", 0}}
	w.say(stored(1, block(10, 0, ids(2000, 2016), "mm_keys", image)))
	w.cached(16, text(append(ids(1000, 1016), ids(2000, 2016)...), 1))
	w.say(stored(nil, block(11, 0, ids(3000, 3016), "lora_id", 4)))
	q := text(ids(3000, 3016), 1)
	w.cached(0, q)
	q.Adapter = "id:4"
	w.cached(16, q)
	w.say(event("type", "all_cleared"))
	w.cached(0, p)
	if s := w.x.Stats(); s.UnknownEvents != 0 {
		t.Errorf("%+v", s)
	}
}
