//go:build !race

package tokenmemo

const raceEnabled = false
