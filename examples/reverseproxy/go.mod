module github.com/warmroute/router/examples/reverseproxy

go 1.25.0

require (
	github.com/warmroute/router v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
)

replace github.com/warmroute/router => ../..
