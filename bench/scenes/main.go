// Command scenes plays fleets in virtual time that meet an overload, or caches that evict, and prints the tables of
// RESULTS.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scenes:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("scenes", flag.ContinueOnError)
	seeds := f.Int("seeds", 3, "how many seeds, from 1 on")
	kind := f.String("kind", "", "overload: one kind of engines; default: all")
	data := f.String("data", dataFolder, "line: the `folder` of the recorded traces")
	only := f.String("workload", "", "line, split: one workload; default: all")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *seeds < 1 || *seeds > 1000 {
		return fmt.Errorf("-seeds: %d is not one of 1 to 1000", *seeds)
	}
	switch name := f.Arg(0); name {
	case "overload":
		return overloads(out, *kind, *seeds)
	case "eviction":
		return evicting(out, *seeds)
	case "split":
		return splitting(out, *only, *seeds)
	case "adapters":
		return adapting(out, *seeds)
	case "line":
		return lines(out, *data, *only, *seeds)
	default:
		return fmt.Errorf("%q is not a scene: overload, eviction, line, split, adapters", name)
	}
}

// loads are the clients of an overload over what fits.
var loads = []float64{1, 1.25, 1.5, 2}

// fleets are the names of the fleets.
func fleets() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return append(names, mixedName)
}

// overloads prints the table of overloads.
func overloads(out io.Writer, kind string, seeds int) error {
	fmt.Fprint(out, "| engines | rule |")
	for _, x := range loads {
		fmt.Fprintf(out, " %g x |", x)
	}
	fmt.Fprintln(out, " recovery, s | others failed | others slower | attempts |")
	fmt.Fprintln(out, "|---|---|"+strings.Repeat("---|", len(loads)+4))
	for _, name := range fleets() {
		if kind != "" && kind != name {
			continue
		}
		for _, policy := range healthPolicies {
			fmt.Fprintf(out, "| %s | %s |", name, policy)
			var worst overloaded
			for _, x := range loads {
				sum := 0.0
				for seed := range uint64(seeds) {
					r, err := overload{kind: name, policy: policy, over: x, seed: seed + 1, engines: 8,
						before: 10 * time.Second, during: 30 * time.Second, after: 40 * time.Second}.run()
					if err != nil {
						return err
					}
					sum += r.goodput / float64(seeds)
					worst.add(r)
				}
				fmt.Fprintf(out, " %.2f |", sum)
			}
			fmt.Fprintln(out, worst.cells())
		}
	}
	return nil
}

// add takes the worse of each.
func (o *overloaded) add(r overloaded) {
	if r.recovery < 0 || o.recovery >= 0 && r.recovery > o.recovery {
		o.recovery = r.recovery
	}
	o.others, o.slower, o.tries = max(o.others, r.others), max(o.slower, r.slower), max(o.tries, r.tries)
}

func (o *overloaded) cells() string {
	recovery := "never"
	if o.recovery >= 0 {
		recovery = fmt.Sprintf("%.1f", o.recovery)
	}
	return fmt.Sprintf(" %s | %.1f%% | %.2f | %.1f |", recovery, 100*o.others, o.slower, o.tries)
}
