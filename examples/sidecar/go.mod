module github.com/warmroute/router/examples/sidecar

go 1.25.0

require (
	github.com/getkin/kin-openapi v0.153.0
	github.com/warmroute/router v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-openapi/jsonpointer v0.22.5 // indirect
	github.com/go-openapi/swag/jsonname v0.25.5 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/text v0.38.0 // indirect
)

replace github.com/warmroute/router => ../..
