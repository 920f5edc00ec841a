module github.com/warmroute/router/debugui/browsertest

go 1.25.0

require github.com/warmroute/router v0.1.0

require (
	github.com/armon/go-radix v1.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/pebbe/zmq4 v1.4.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
)

replace github.com/warmroute/router => ../..
