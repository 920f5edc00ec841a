//go:build race

package cacheaware_test

const raceDetector = true
