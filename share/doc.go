// Package share gives the gateways of a fleet one view of their replicas: which parts of which prompts were sent
// where, how much is in flight there, and what the engines said. The gateways exchange fingerprints and numbers
// over a [Bus]; no text leaves the process.
package share
