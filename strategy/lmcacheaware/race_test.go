//go:build race

package lmcacheaware_test

const raceDetector = true
