package otel

import (
	"github.com/warmroute/router/membudget"
	"go.opentelemetry.io/otel/attribute"
)

const (
	keyMemory  = attribute.Key("warmroute.memory")
	keyAccount = attribute.Key("warmroute.account")
)

// WatchMemory is WatchFleet for a memory budget.
func (t *Telemetry) WatchMemory(name string, b *membudget.Budget) error {
	return watch(t, t.memories, name, b, b == nil)
}

func (t *Telemetry) observeMemory(s sums, name string, b *membudget.Budget) {
	n := keyMemory.String(name)
	for _, a := range b.Stats().Accounts {
		account := keyAccount.String(a.Name)
		s.add(t.memoryUsed, int(a.Used), n, account)
		s.add(t.memoryLimit, int(a.Limit), n, account)
		s.add(t.memoryShed, int(a.Shed), n, account)
	}
}
