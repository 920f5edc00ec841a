// Command budget measures the costs of the library and prints them with their
// budgets. Budgets are ratios of two measurements of the same run, or
// properties that do not depend on the machine; times are readings.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/warmroute/router/internal/workload"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		os.Exit(1)
	}
}

// groups are the parts of the table, in its order.
var groups = []struct {
	name string
	run  func(*table, *options) error
}{
	{"trie", trieRows},
	{"kvindex", kvindexRows},
	{"prompt", promptRows},
	{"disagg", disaggRows},
	{"route", routeRows},
	{"queue", queueRows},
	{"share", shareRows},
	{"gateway", gatewayRows},
}

// options are the command's flags, and the values that the groups share.
type options struct {
	reps    int
	gateway string // a gateway that is built already, "" for none
	chat    *corpus
}

func run() error {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	all := strings.Join(names, ",")
	rows := flag.String("rows", all, "the parts of the table to measure")
	reps := flag.Int("reps", 5, "repetitions of each measurement; the least disturbed one counts")
	strict := flag.Bool("strict", false, "exit with 1 if a budget is missed")
	gateway := flag.String("gateway", "", "the gateway's binary (default: build cmd/warmroute)")
	engines := flag.Int("serve-engines", 0, "be so many engines and nothing else; used by the command itself")
	delay := flag.Duration("delay", 0, "of -serve-engines")
	proxy := flag.String("serve-proxy", "",
		"be a plain reverse proxy at this address, before the engines given as arguments; used by the command itself")
	flag.Parse()
	switch {
	case *engines > 0:
		return serveEngines(*engines, *delay)
	case *proxy != "":
		return serveProxy(*proxy, flag.Args())
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *reps < 1 {
		return fmt.Errorf("-reps %d: want at least 1", *reps)
	}
	for _, name := range strings.Split(*rows, ",") {
		if !strings.Contains(","+all+",", ","+name+",") {
			return fmt.Errorf("-rows: no part %q; there are %s", name, all)
		}
	}

	start := time.Now()
	t := &table{log: os.Stderr}
	t.say("making the workload chat")
	chat, err := newCorpus(workload.Chat(workload.ChatConfig{}), true)
	if err != nil {
		return err
	}
	o := &options{reps: *reps, gateway: *gateway, chat: chat}
	for _, g := range groups {
		if strings.Contains(","+*rows+",", ","+g.name+",") {
			if err := g.run(t, o); err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
		}
	}
	missed := t.print(os.Stdout)
	fmt.Printf("%d budgets missed, measured in %s\n", missed, time.Since(start).Round(time.Second))
	if missed > 0 && *strict {
		os.Exit(1)
	}
	return nil
}

func trieRows(t *table, o *options) error {
	if err := trieMatch(t, o.chat, len(o.chat.Requests), o.reps, 2, 2200*time.Nanosecond); err != nil {
		return err
	}
	if err := trieInsert(t, o.chat, o.reps); err != nil {
		return err
	}
	if err := trieMemory(t, o.chat); err != nil {
		return err
	}
	if err := trieGrowth(t, o.chat, o.reps); err != nil {
		return err
	}
	t.say("making the workload long")
	long, err := newCorpus(workload.Long(workload.LongConfig{}), false)
	if err != nil {
		return err
	}
	return trieMatch(t, long, 1000, o.reps, 1.5, 15*time.Microsecond)
}
