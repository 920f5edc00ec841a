//go:build race

package leastwork_test

const raceEnabled = true // a sync.Pool drops at random then
