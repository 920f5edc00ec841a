//go:build race

package tokenmemo

const raceEnabled = true
