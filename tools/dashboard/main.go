// Command dashboard checks Grafana dashboards by the rules of Grafana's own schema, as the Grafana foundation SDK has
// them: required fields, their types, values and ranges, and no field that the schema does not know.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		data, err := os.ReadFile(path)
		if err == nil {
			err = check(data)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s:\n%v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check returns what the schema has against a dashboard. Panels are of the types that are named here.
func check(data []byte) error {
	cog.NewRuntime().RegisterPanelcfgVariant(stat.VariantConfig())
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	cog.NewRuntime().RegisterPanelcfgVariant(variants.PanelcfgConfig{Identifier: "row"})
	cog.NewRuntime().RegisterDataqueryVariant(prometheus.VariantConfig())
	//lint:ignore SA1019 the file is of the first version of the schema, which every Grafana imports
	var d dashboard.Dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	if err := found(d.UnmarshalJSONStrict(data)); err != nil {
		return err
	}
	return found(d.Validate())
}

// found returns err, nil if it is the SDK's list of errors and has none.
func found(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}
