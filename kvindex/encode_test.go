package kvindex

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// packer writes msgpack, minimal or not, as the tests need it.
type packer struct {
	b    []byte
	wide bool // headers and numbers wider than they need be
}

func (p *packer) nil() { p.b = append(p.b, 0xc0) }
func (p *packer) float(v float64) {
	p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcb), math.Float64bits(v))
}

func (p *packer) header(fix byte, most int, op byte, n int) {
	switch {
	case n < most && !p.wide:
		p.b = append(p.b, fix|byte(n))
	case n < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, op), uint16(n))
	default:
		p.b = binary.BigEndian.AppendUint32(append(p.b, op+1), uint32(n))
	}
}

func (p *packer) array(n int)  { p.header(0x90, 16, 0xdc, n) }
func (p *packer) object(n int) { p.header(0x80, 16, 0xde, n) }
func (p *packer) str(s string) { p.header(0xa0, 32, 0xda, len(s)); p.b = append(p.b, s...) }
func (p *packer) bytes(s []byte) {
	p.b = append(append(p.b, 0xc4, byte(len(s))), s...)
}

func (p *packer) uint(v uint64) {
	switch {
	case p.wide:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcf), v)
	case v < 0x80:
		p.b = append(p.b, byte(v))
	case v < 1<<8:
		p.b = append(p.b, 0xcc, byte(v))
	case v < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xcd), uint16(v))
	case v < 1<<32:
		p.b = binary.BigEndian.AppendUint32(append(p.b, 0xce), uint32(v))
	default:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcf), v)
	}
}

func (p *packer) int(v int64) {
	if v >= 0 {
		p.uint(uint64(v))
		return
	}
	p.b = binary.BigEndian.AppendUint64(append(p.b, 0xd3), uint64(v))
}

func (p *packer) strOrNil(s string) {
	if s == "" {
		p.nil()
	} else {
		p.str(s)
	}
}

// dialect is how an engine writes its events.
type dialect struct {
	maps     bool // events are maps
	mapBatch bool
	bytes    bool // hashes are bytes
	signed   bool
	sglang   bool // the salt is a field of its own, there are no groups
	wide     bool
	shuffle  *rand.Rand // of a map's keys
}

func (d dialect) hash(p *packer, h uint64) {
	switch {
	case d.bytes:
		long := make([]byte, 24, 32)
		for i := range long {
			long[i] = byte(h >> (i % 8) * 3)
		}
		p.bytes(binary.BigEndian.AppendUint64(long, h))
	case d.signed:
		p.int(int64(h))
	default:
		p.uint(h)
	}
}

func (d dialect) hashes(p *packer, hs []uint64) {
	p.array(len(hs))
	for _, h := range hs {
		d.hash(p, h)
	}
}

type entry struct {
	key   string
	write func(p *packer)
}

// encode writes events as the dialect's engine would send them.
func (d dialect) encode(rank int, events []Event) []byte {
	p := &packer{wide: d.wide}
	if d.mapBatch {
		p.object(3)
		p.str("ts")
		p.float(1.5)
		p.str("events")
	} else {
		p.array(3)
		p.float(1.5)
	}
	p.array(len(events))
	for i := range events {
		d.event(p, &events[i])
	}
	if d.mapBatch {
		p.str("data_parallel_rank")
	}
	p.int(int64(rank))
	return p.b
}

func (d dialect) event(p *packer, e *Event) {
	var f []entry
	tag := map[EventKind]string{Stored: "BlockStored", Removed: "BlockRemoved", Cleared: "AllBlocksCleared"}[e.Kind]
	media := map[Medium]string{Device: "GPU", Host: "CPU", Storage: "STORAGE"}[e.Medium]
	if e.Kind != Cleared {
		f = append(f, entry{"block_hashes", func(p *packer) { d.hashes(p, e.Hashes) }})
	}
	if e.Kind == Stored {
		f = append(f,
			entry{"parent_block_hash", func(p *packer) {
				if e.HasParent {
					d.hash(p, e.Parent)
				} else {
					p.nil()
				}
			}},
			entry{"token_ids", func(p *packer) {
				if e.Pairs {
					p.array(len(e.Tokens) - 1)
					for i := range len(e.Tokens) - 1 {
						p.array(2)
						p.uint(uint64(e.Tokens[i]))
						p.uint(uint64(e.Tokens[i+1]))
					}
					return
				}
				p.array(len(e.Tokens))
				for _, t := range e.Tokens {
					p.uint(uint64(t))
				}
			}},
			entry{"block_size", func(p *packer) { p.int(int64(e.BlockSize)) }},
			entry{"lora_id", func(p *packer) { p.nil() }})
	}
	if e.Kind != Cleared {
		f = append(f, entry{"medium", func(p *packer) { p.str(media) }})
	}
	if e.Kind == Stored {
		switch {
		case d.sglang && !d.maps && (e.Salt != "" || e.Adapter != ""): // one map at the end
			f = append(f, entry{"", func(p *packer) {
				p.object(2)
				p.str("cache_salt")
				p.strOrNil(e.Salt)
				p.str("lora_name")
				p.strOrNil(e.Adapter)
			}})
		default:
			f = append(f, entry{"lora_name", func(p *packer) { p.strOrNil(e.Adapter) }})
			if d.sglang && e.Salt != "" {
				f = append(f, entry{"cache_salt", func(p *packer) { p.str(e.Salt) }})
			}
		}
		if !d.sglang {
			f = append(f, entry{"extra_keys", func(p *packer) {
				p.array(len(e.Hashes))
				for i := range e.Hashes {
					var keys []string
					if e.Adapter != "" {
						keys = append(keys, e.Adapter)
					}
					if i == 0 && !e.HasParent && e.Salt != "" {
						keys = append(keys, e.Salt)
					}
					image := e.Extra != nil && e.Extra[i] != 0
					if keys == nil && !image {
						p.nil()
						continue
					}
					n := len(keys)
					if image {
						n++
					}
					p.array(n)
					for j, k := range keys {
						if image && j == n-2 && e.Salt == k {
							p.array(2)
							p.uint(e.Extra[i])
							p.int(-3)
							image = false
						}
						p.str(k)
					}
					if image {
						p.array(2)
						p.uint(e.Extra[i])
						p.int(-3)
					}
				}
			}})
		}
	}
	if !d.sglang && e.Kind != Cleared && e.Group >= 0 {
		f = append(f, entry{"group_idx", func(p *packer) { p.int(int64(e.Group)) }})
	}
	if !d.sglang && e.Kind == Stored && e.Spec != SpecNone {
		names := map[Spec]string{SpecFull: "full_attention", SpecSliding: "sliding_window", SpecOther: "mamba"}
		f = append(f, entry{"kv_cache_spec_kind", func(p *packer) { p.str(names[e.Spec]) }},
			entry{"kv_cache_spec_sliding_window", func(p *packer) {
				if e.Window == 0 {
					p.nil()
				} else {
					p.int(int64(e.Window))
				}
			}})
	}
	if !d.maps {
		p.array(1 + len(f))
		p.str(tag)
		for _, x := range f {
			x.write(p)
		}
		return
	}
	f = append([]entry{{"type", func(p *packer) { p.str(tag) }}}, f...)
	if d.shuffle != nil {
		d.shuffle.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
	}
	p.object(len(f))
	for _, x := range f {
		p.str(x.key)
		x.write(p)
	}
}
