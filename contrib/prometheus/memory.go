package prometheus

import "github.com/warmroute/router/membudget"

var (
	memoryBytes = read(gauge, "memory_bytes", "Bytes that an account of the memory budget has.", "memory", "account")
	memoryPeak  = read(gauge, "memory_peak_bytes", "The most bytes that the account has had.", "memory", "account")
	memoryLimit = read(gauge, "memory_limit_bytes", "The most bytes that the account may have.", "memory", "account")
	memoryShed  = read(counter, "memory_shed_total", "Reservations for which the account had no bytes.", "memory",
		"account")
	memoryTotal = read(gauge, "memory_total_limit_bytes", "The most bytes that all accounts together may have.", "memory")
)

// WatchMemory is WatchFleet for a memory budget.
func (c *Collector) WatchMemory(name string, b *membudget.Budget) error {
	return watch(c, c.memories, name, b, b == nil)
}

func collectMemory(p page, name string, b *membudget.Budget) {
	s := b.Stats()
	p.add(memoryTotal, float64(s.Limit), name)
	for _, a := range s.Accounts {
		p.add(memoryBytes, float64(a.Used), name, a.Name)
		p.add(memoryPeak, float64(a.Peak), name, a.Name)
		p.add(memoryLimit, float64(a.Limit), name, a.Name)
		p.add(memoryShed, float64(a.Shed), name, a.Name)
	}
}
