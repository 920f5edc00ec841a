//go:build !race

package leastwork_test

const raceEnabled = false
