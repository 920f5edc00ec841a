// Package racetest lets tests ask for the race detector, which allocates, slows down by about ten and makes pools
// forget at random.
package racetest
