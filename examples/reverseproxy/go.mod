module github.com/warmroute/router/examples/reverseproxy

go 1.25.0

require (
	github.com/warmroute/router v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.70.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace github.com/warmroute/router => ../..
