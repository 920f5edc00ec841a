// Package layout holds the rules that say which package may import which. Its
// test is all there is to it.
package layout
