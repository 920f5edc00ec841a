// Package expfmttest holds package samples to Prometheus' own parser. It is a
// module of its own, so that no other module builds protobuf.
package expfmttest
