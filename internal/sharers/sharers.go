// Package sharers has the type that keeps trie.Trie.MatchShared inside the module.
package sharers

// Count is a number of recorded prompts that share a beginning.
type Count struct{ Prompts uint32 }
