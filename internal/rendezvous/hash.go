// Package rendezvous gives each target a place for each key, so that processes that share nothing agree on it
// (rendezvous hashing: Thaler and Ravishankar, IEEE/ACM Transactions on Networking 1998).
package rendezvous

import "github.com/cespare/xxhash/v2"

// Hash returns a 64-bit hash of s that is the same in every process and every release (XXH64).
func Hash(s string) uint64 { return xxhash.Sum64String(s) }

// Mix scrambles x: each bit of the result depends on all bits of x, and different x give different results. It is the
// finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) with
// David Stafford's constants "mix13".
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Place returns the place of id under seed: a number that looks random, is the same in every process and differs
// between IDs. Of several IDs, each has the greatest place under an equal share of the seeds.
func Place(id string, seed uint64) uint64 { return Mix(Hash(id) ^ seed) }
