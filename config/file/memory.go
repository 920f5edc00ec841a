package file

import "github.com/warmroute/router/membudget"

// MemoryShares are the parts of File.MaxMemory that its accounts may take, which add up to at most 1; see package
// membudget, which says what they count.
type MemoryShares struct {
	Bodies  float64 `toml:"bodies" min:"0.001" max:"1"`
	Prompts float64 `toml:"prompts" min:"0.001" max:"1"`
	Replies float64 `toml:"replies" min:"0.001" max:"1"`
	Events  float64 `toml:"events" min:"0.001" max:"1"`
	Tokens  float64 `toml:"tokens" min:"0.001" max:"1"`
}

func (m *MemoryShares) defaults() {
	s := membudget.DefaultShares()
	*m = MemoryShares{
		Bodies: s[membudget.Bodies], Prompts: s[membudget.Prompts], Replies: s[membudget.Replies],
		Events: s[membudget.Events], Tokens: s[membudget.Tokens],
	}
}

// Memory returns the settings as package membudget has them. Package config reads no requests and bounds nothing of
// them: the host does.
func (f *File) Memory() membudget.Config {
	m := f.MemoryShares
	return membudget.Config{Limit: f.MaxMemory, Shares: map[string]float64{
		membudget.Bodies: m.Bodies, membudget.Prompts: m.Prompts, membudget.Replies: m.Replies,
		membudget.Events: m.Events, membudget.Tokens: m.Tokens,
	}}
}

// memory checks the table [memory_shares].
func (c *checker) memory() {
	m, path := &c.file.MemoryShares, child("", "memory_shares")
	sum := m.Bodies + m.Prompts + m.Replies + m.Events + m.Tokens
	if c.good(path) && sum > 1+1e-9 {
		c.failTable(path, "the shares add up to %.4g, with the defaults of those that are not set; they must add up to at most 1", sum)
	}
}
