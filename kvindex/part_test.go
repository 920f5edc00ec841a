package kvindex

import "testing"

// TestClearOfOneMedium: a clear that names a medium, a group or a scope ends nothing else.
func TestClearOfOneMedium(t *testing.T) {
	full := Config{HostCredit: 1, StorageCredit: 1, RemoteCredit: 1}
	a, b := ids(1000, 1016), ids(1016, 1032)
	for name, c := range map[string]struct {
		clear any
		want  []int // of a prompt on the device, on the host, on a disk, elsewhere
	}{
		"all":              {fieldsOf{"type", "AllBlocksCleared"}, []int{0, 0, 0, 0}},
		"all, an array":    {[]any{"AllBlocksCleared"}, []int{0, 0, 0, 0}},
		"all, ATOM's":      {[]any{"AllBlocksCleared", nil}, []int{0, 0, 0, 0}},
		"the device":       {fieldsOf{"type", "AllBlocksCleared", "medium", "GPU"}, []int{0, 32, 32, 32}},
		"the device, ATOM": {[]any{"AllBlocksCleared", "GPU"}, []int{0, 32, 32, 32}},
		"the host":         {fieldsOf{"type", "AllBlocksCleared", "medium", "CPU"}, []int{32, 0, 32, 32}},
		"the host, ATOM":   {[]any{"AllBlocksCleared", "CPU"}, []int{32, 0, 32, 32}},
		"a disk":           {[]any{"AllBlocksCleared", "DISK"}, []int{32, 32, 0, 32}},
		"elsewhere":        {[]any{"AllBlocksCleared", "REMOTE"}, []int{32, 32, 32, 0}},
		"a tier":           {fieldsOf{"type", "TierBlocksCleared", "medium", "CPU"}, []int{32, 0, 32, 32}},
		"far":              {fieldsOf{"type", "AllBlocksCleared", "locality", "REMOTE"}, []int{32, 32, 32, 0}},
		"another group":    {fieldsOf{"type", "AllBlocksCleared", "group_idx", 3}, []int{32, 32, 32, 32}},
		"a salt":           {fieldsOf{"type", "AllBlocksCleared", "cache_salt", "s"}, []int{32, 32, 32, 32}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWired(t, full)
			media := []string{"GPU", "CPU", "DISK", "REMOTE"}
			for i, m := range media {
				e := stored16([]int{10 * (i + 1), 10*(i+1) + 1}, nil, append(append([]int{}, a...), b...))
				e[7].([]int)[0] = i
				e[13] = m
				w.say(e)
			}
			w.say(c.clear)
			for i, want := range c.want {
				p := text(append(append([]int{}, a...), b...), 1)
				p.Tokens[0] = uint32(i)
				if got := w.x.Match(p, []string{"a"}, nil)[0]; got != want {
					t.Errorf("%s: %d, want %d", media[i], got, want)
				}
			}
		})
	}
}

// TestClearOfOneScope: a clear that names a salt or an adapter ends the blocks of these alone.
func TestClearOfOneScope(t *testing.T) {
	w := newWired(t, Config{})
	p := text(ids(1000, 1032), 1)
	salted, adapted := p, p
	salted.Salt, adapted.Adapter = "s", "x"
	fill := func() {
		w.say(stored16([]int{1, 2}, nil, ids(1000, 1032)))
		w.say(stored16([]int{3, 4}, nil, ids(1000, 1032), "cache_salt", "s"))
		e := stored16([]int{5, 6}, nil, ids(1000, 1032))
		e[15] = "x"
		w.say(e)
	}
	fill()
	w.say(fieldsOf{"type", "AllBlocksCleared", "cache_salt", "s"})
	w.cached(32, p)
	w.cached(0, salted)
	w.cached(32, adapted)
	fill()
	w.say(fieldsOf{"type", "AllBlocksCleared", "lora_name", "x"})
	w.cached(32, p)
	w.cached(32, salted)
	w.cached(0, adapted)
}

// TestMoves: ATOM's BlockTransferred takes a block from one medium to another.
func TestMoves(t *testing.T) {
	move := func(from, to string, hashes ...int) any {
		return []any{"BlockTransferred", hashes, from, to, 0}
	}
	p := text(ids(1000, 1032), 1)
	for credit, half := range map[float64]int{0: 0, .5: 16, 1: 32} {
		w := newWired(t, Config{HostCredit: credit, RemoteCredit: credit})
		w.say(stored16([]int{1, 2}, nil, ids(1000, 1032)))
		w.cached(32, p)
		w.say(move("GPU", "CPU", 1, 2))
		w.cached(half, p)
		w.say(move("CPU", "GPU", 1))
		w.cached(16+int(credit)*16, p)
		w.say(move("CPU", "GPU", 2))
		w.cached(32, p)
		w.say(move("GPU", "REMOTE", 2), move("GPU", "GPU", 1))
		w.cached(16+int(credit)*16, p)
		w.say(fieldsOf{"type", "BlockTransferred", "block_hashes", []int{2}, "from_medium", "REMOTE", "to_medium", "GPU"})
		w.cached(32, p)
		w.say([]any{"BlockRemoved", []int{2}, "CPU"})
		w.cached(32, p)
		w.say([]any{"BlockRemoved", []int{2}, "GPU"})
		w.cached(16, p)
	}
}

// TestCredits: each medium has a worth of its own, and a block counts by the best.
func TestCredits(t *testing.T) {
	w := newWired(t, Config{HostCredit: .5, StorageCredit: .25})
	hashes := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	all := ids(1000, 1160)
	for _, m := range []struct {
		medium string
		n      int
	}{{"GPU", 2}, {"CPU", 6}, {"STORAGE", 10}, {"REMOTE", 10}} {
		e := stored16(hashes[:m.n], nil, all[:16*m.n])
		e[13] = m.medium
		w.say(e)
	}
	for n, want := range []int{0, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5} {
		w.cached(16*want, text(all[:16*n], 1))
	}
}
