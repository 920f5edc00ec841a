module github.com/warmroute/router/cmd/warmroute

go 1.25.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/klauspost/compress v1.20.1
	github.com/warmroute/router v0.1.0
	go.uber.org/zap v1.28.0
)

require (
	github.com/armon/go-radix v1.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/pebbe/zmq4 v1.4.0 // indirect
	github.com/pelletier/go-toml/v2 v2.4.3 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/warmroute/router => ../..
