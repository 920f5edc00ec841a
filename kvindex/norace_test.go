//go:build !race

package kvindex

const raced = false
