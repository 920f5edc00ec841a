// Command bench replays workloads through a simulated fleet with several policies
// and prints the results. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/warmroute/router/bench/report"
	"github.com/warmroute/router/bench/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	spareCollections()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	workloads, rates, policies, seeds, gateways, speeds, events string
	calibration, data, json, html, plot, profile                string
	from, against, svg                                          string
	replicas, blocks                                            int
	scrape, lag, share                                          time.Duration
	drop, shareLoss                                             float64
	shareOnly                                                   string
	shareEvery                                                  time.Duration
	sharePaths                                                  bool
	tokens, list, noReplay, exact                               bool
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.workloads, "workload", "", "comma-separated `names`, or files of traces; default: "+
		strings.Join(defaultWorkloads, ", "))
	f.StringVar(&o.rates, "rate", "", "comma-separated `loads`, in the workload's unit; default: three below saturation")
	f.StringVar(&o.policies, "policies", "", "comma-separated `names`, or all; default: "+
		strings.ReplaceAll(defaultPolicies, ",", ", "))
	f.StringVar(&o.seeds, "seeds", "5", "how many seeds, from 1 on, or a comma-separated `list`")
	f.IntVar(&o.replicas, "replicas", 0, "how many replicas; 0: the workload's own number, mostly 8")
	f.StringVar(&o.gateways, "gateways", "1", "comma-separated `numbers` of gateways that share nothing")
	f.StringVar(&o.calibration, "calibration", "", "`name` of the replicas' calibration; see -list")
	f.IntVar(&o.blocks, "blocks", 0, "how many blocks of KV cache a replica has; 0: the calibration's")
	f.StringVar(&o.speeds, "speeds", "", "comma-separated `speeds` of the replicas; missing ones are 1")
	f.StringVar(&o.events, "events", "", "changes of replicas: `\"die 0 100s 60s tell; slow 1 50s 0.5; join 200s\"`")
	f.DurationVar(&o.scrape, "scrape", 5*time.Second, "how often gateways learn the engines' queues; 0: never")
	f.DurationVar(&o.lag, "kv-lag", eventLag, "how late engines' KV events are, for policies that read them")
	f.DurationVar(&o.share, "share", -1, "gateways share, with this `lag`; less than 0: not")
	f.Float64Var(&o.shareLoss, "share-loss", 0, "share of the frames for that which are lost")
	f.StringVar(&o.shareOnly, "share-only", "", "share one `half` alone: cache or load")
	f.DurationVar(&o.shareEvery, "share-every", 0, "frames for that wait for a `timer`, as other routers' do (0: not)")
	f.BoolVar(&o.sharePaths, "share-paths", false,
		"share hashes of whole prompts, as SGLang's mesh does, every -share-every: whoever has no such prompt drops them")
	f.Float64Var(&o.drop, "kv-drop", 0, "share of these that are lost")
	f.BoolVar(&o.noReplay, "kv-noreplay", false, "lost messages are not replayed")
	f.BoolVar(&o.exact, "precise", false, "exact numbers against approximate ones: workloads, rates and caches of its own")
	f.BoolVar(&o.tokens, "tokens", false, "give policies token ids as well as the text")
	f.StringVar(&o.data, "data", dataFolder(), "`folder` of the recorded traces")
	f.StringVar(&o.json, "json", "", "write everything to this `file`")
	f.StringVar(&o.html, "html", "", "write a page with plots to this `file`")
	f.StringVar(&o.plot, "plot", "",
		"draw the mean TTFT of each policy, of the first workload and rate, in this `file` of SVG")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this `file`")
	f.StringVar(&o.from, "from", "", "compare this policy with -against, or this `file` of -json")
	f.StringVar(&o.against, "against", "", "the policy, or the `file` of -json, that -from is compared with")
	f.StringVar(&o.svg, "sweep", "",
		"try the constants of least_work and draw the results in this `file` of SVG; only -data goes with it")
	f.BoolVar(&o.list, "list", false, "list workloads, policies and calibrations")
	return f
}

// dataFolder returns the folder of the recorded traces next to the checkout,
// seen from the repository's root or from this module's folder.
func dataFolder() string {
	beside := filepath.Join("..", "shared", "data")
	if _, err := os.Stat(beside); err != nil {
		if _, err := os.Stat(filepath.Join("..", beside)); err == nil {
			return filepath.Join("..", beside)
		}
	}
	return beside
}

// spareCollections lets the heap grow before it is collected: runs make and drop
// much text. The environment takes precedence.
func spareCollections() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(2 << 30)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	var o options
	f := o.flags()
	f.SetOutput(log)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag", f.Arg(0))
	}
	if o.list {
		return list(out, o.data)
	}
	if o.svg != "" {
		all, err := o.sweep(ctx, out, log)
		if err != nil {
			return err
		}
		return save(o.svg, func(w io.Writer) error { return writeSweep(w, all) })
	}
	if o.exact {
		return o.precise(ctx, preciseScenes, out, log)
	}
	if (o.from == "") != (o.against == "") {
		return errors.New("-from and -against go together")
	}
	if isFile(o.from) && isFile(o.against) {
		return compareFiles(out, o.from, o.against)
	}
	if o.from != "" && o.policies == "" {
		o.policies = o.from + "," + o.against
	}
	plan, err := o.plan(log)
	if err != nil {
		return err
	}
	if o.profile != "" {
		p, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		if err := pprof.StartCPUProfile(p); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	study, err := plan.run(ctx, log)
	if err != nil {
		return err
	}
	study.Command = strings.Join(append([]string{"go -C bench run ."}, quoted(args)...), " ")
	printStudy(out, study, plan.notes)
	if o.from != "" {
		if err := compareCells(out, study.Cells, study.Cells, o.from, o.against); err != nil {
			return err
		}
	}
	if o.json != "" {
		if err := save(o.json, func(w io.Writer) error { return json.NewEncoder(w).Encode(study) }); err != nil {
			return err
		}
	}
	if o.plot != "" {
		if err := save(o.plot, func(w io.Writer) error { return writePlot(w, study) }); err != nil {
			return err
		}
	}
	if o.html != "" {
		return save(o.html, func(w io.Writer) error { return report.Write(w, study) })
	}
	return nil
}

func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		if strings.ContainsAny(a, " ;&|$\"'*") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return out
}

func save(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func isFile(name string) bool { return strings.HasSuffix(name, ".json") }

func readStudy(path string) (*sim.Study, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := new(sim.Study)
	if err := json.NewDecoder(f).Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range s.Cells {
		if len(s.Cells[i].Runs) == 0 {
			return nil, fmt.Errorf("%s: cell %d has no runs", path, i)
		}
	}
	return s, nil
}

// compareFiles compares the common cells of two files: two versions.
func compareFiles(out io.Writer, from, against string) error {
	a, err := readStudy(from)
	if err != nil {
		return err
	}
	b, err := readStudy(against)
	if err != nil {
		return err
	}
	return compareCells(out, a.Cells, b.Cells, "", "")
}

// compareCells prints each cell of a with the one of b that it is compared with:
// that of policy against for those of policy from, or of the same policy if both
// are "".
func compareCells(out io.Writer, a, b []sim.Cell, from, against string) error {
	draw := rand.New(rand.NewPCG(1, 1))
	var ps []named
	for i := range a {
		for k := range b {
			x, y := &a[i], &b[k]
			same := x.Workload == y.Workload && x.Rate == y.Rate && x.Gateways == y.Gateways
			if !same || from == "" && x.Policy != y.Policy || from != "" && (x.Policy != from || y.Policy != against) {
				continue
			}
			if p, ok := sim.Compare(x, y, draw.IntN); ok {
				ps = append(ps, named{p, x.Policy, y.Policy})
			}
		}
	}
	if len(ps) == 0 {
		return errors.New("-from and -against have no run in common")
	}
	printPaired(out, ps)
	return nil
}
