// Package expfmttest holds package samples to Prometheus' own parser. It is a
// module of its own, so that nobody else builds protobuf.
package expfmttest
