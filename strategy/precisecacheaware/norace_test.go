//go:build !race

package precisecacheaware_test

const raceDetector = false
