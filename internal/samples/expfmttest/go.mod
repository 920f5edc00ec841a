module github.com/warmroute/router/internal/samples/expfmttest

go 1.25.0

require (
	github.com/prometheus/client_model v0.6.2
	github.com/prometheus/common v0.70.0
	github.com/warmroute/router v0.1.0
)

require (
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace github.com/warmroute/router => ../../..
