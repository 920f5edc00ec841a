//go:build race

package kvindex

const raced = true
