package config

import (
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/kvindex"
)

// bounds are the settings of the index that all providers share: the greatest of each.
type bounds struct {
	blocks, recompute     int
	host, storage, remote float64
}

func (b *bounds) join(k *file.KVEvents) {
	b.blocks = max(b.blocks, k.MaxBlocks)
	b.recompute = max(b.recompute, k.Recompute)
	b.host = max(b.host, k.HostCredit)
	b.storage = max(b.storage, k.StorageCredit)
	b.remote = max(b.remote, k.RemoteCredit)
}

func (b *bounds) config(slots *adapters.Slots) kvindex.Config {
	return kvindex.Config{
		MaxBlocks: b.blocks, Recompute: b.recompute,
		HostCredit: b.host, StorageCredit: b.storage, RemoteCredit: b.remote,
		Trace: kvindex.Trace{Adapter: slots.Seen},
	}
}
