package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/warmroute/router/config"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/roundrobin"
	"github.com/warmroute/router/vllmtest"
)

// demo is a fleet of simulated replicas and its users. The workload is an office's
// assistants, each with a system prompt of its own: who uses one gives it a
// document, and then it goes on for up to 32 turns, with short answers and some
// 600 bytes of new text a turn, as agents that call tools do. The replicas have
// time for all of it under either strategy; what differs is how much of it they
// compute again.
type demo struct {
	replicas int
	blocks   int     // of each replica's cache, 16 tokens each
	speed    float64 // the simulated engines run this much faster than real ones
	chat     workload.ChatConfig
	document int           // bytes of the document that a chat begins with
	users    int           // who chat at once
	think    time.Duration // mean time from an answer to the next question, in the engines' time
	reply    int           // tokens of an answer
	live     *debugui.Page // shows it; nil: nothing does
}

var standardDemo = demo{
	replicas: 4,
	// 98,304 tokens: the space next to a 70B model in 16 bits on two 80 GB cards,
	// with a cache of 8 bits.
	blocks: 6144,
	speed:  10,
	chat: workload.ChatConfig{
		Seed:          1,
		Conversations: 64,
		Systems:       10,
		SystemBytes:   8 << 10,
		Turns:         32,
		UserBytes:     600,
		// The workload's answers are not used: the replicas answer.
		AssistantBytes: 3,
	},
	document: 12 << 10,
	users:    36,
	think:    3 * time.Second,
	reply:    30,
}

// runDemo runs the demo with a live page at an address, "" for some port of this
// machine's own.
func runDemo(ctx context.Context, out io.Writer, address string) error {
	d := standardDemo
	var err error
	if d.live, err = debugui.New(debugui.Config{Title: "Warmroute demo"}); err != nil {
		return err
	}
	if address == "" {
		address = "127.0.0.1:0"
	}
	url, stop, err := (&livePage{Page: d.live}).serve(address, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "Watch it live, as long as it runs: %s\n\n", url)
	return d.run(ctx, out)
}

// run drives the same chats through the gateway with round_robin and with
// least_work, each on fresh replicas, and prints the results.
func (d demo) run(ctx context.Context, out io.Writer) error {
	w := d.workload()
	fmt.Fprintf(out, "%d simulated replicas (a 70B model on two H100s; time runs %gx as fast), %d tokens of cache each\n",
		d.replicas, d.speed, d.blocks*16)
	fmt.Fprintf(out, "%d chats, each about a document of %d KiB, over %d system prompts of %d KiB; %d users at a time, "+
		"%d requests over HTTP\n\n",
		len(w.Conversations), d.document>>10, d.chat.Systems, d.chat.SystemBytes>>10, d.users, len(w.Requests))

	names := []string{roundrobin.Name, leastwork.Name}
	results := make([]*tally, len(names))
	for i, name := range names {
		t, err := d.phase(ctx, out, name, w)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		results[i] = t
	}
	fmt.Fprintln(out)
	d.table(out, names, results)
	fmt.Fprint(out, `
Times are what the simulated engines' users would see. With engines of your own:

    gateway -listen :8080 -target http://HOST:8000 -target http://HOST:8001
    curl -i localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \
        -d '{"model":"MODEL","messages":[{"role":"user","content":"hello"}]}'

The reply's X-Warmroute-* headers say which target answered and why.
`)
	return nil
}

// workload returns the chats, each with its document before the first question.
func (d demo) workload() *workload.Workload {
	w := workload.Chat(d.chat)
	documents := workload.Long(workload.LongConfig{
		Seed: d.chat.Seed, Documents: len(w.Conversations), DocumentBytes: d.document, Questions: 1,
	})
	for i, c := range w.Conversations {
		c.Messages[1].Content = documents.Conversations[i].Messages[0].Content + "\n\n" + c.Messages[1].Content
	}
	return w
}

// phase plays w through a gateway with the named strategy.
func (d demo) phase(ctx context.Context, out io.Writer, strategy string, w *workload.Workload) (_ *tally, err error) {
	flags := fleetFlags{strategy: strategy}
	for i := range d.replicas {
		s, err := vllmtest.New(vllmtest.Config{
			Model:       w.Model,
			Blocks:      d.blocks,
			ReplyTokens: d.reply,
			TimeScale:   1 / d.speed,
		})
		if err != nil {
			return nil, fmt.Errorf("replica %d: %w", i+1, err)
		}
		defer s.Close()
		if err := flags.targets.Set(s.URL); err != nil {
			return nil, err
		}
	}
	service, err := newService(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if d.live != nil {
		service.live = &livePage{Page: d.live, name: func(string) string { return strategy }}
	}
	o := service.options()
	f, err := config.Parse([]byte(flags.file()), o)
	if err != nil {
		return nil, err
	}
	if err := service.build(f, o); err != nil {
		return nil, err
	}
	h, err := NewHandler(Config{service: service, Parser: prompt.Parser{Tenant: tenant}})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- (&server{log: slog.New(slog.DiscardHandler), grace: 5 * time.Second}).run(serving, ln, h)
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()

	p := &players{demo: d, work: w, url: "http://" + ln.Addr().String()}
	return p.play(ctx, newProgress(out, strategy, len(w.Requests)))
}

// table prints the two results side by side.
func (d demo) table(out io.Writer, names []string, t []*tally) {
	tw := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(label string, cells ...string) { fmt.Fprintln(tw, label+"\t"+strings.Join(cells, "\t")+"\t") }
	times := func(label string, f func(*tally) time.Duration) {
		a, b := f(t[0]), f(t[1])
		row(label, d.ms(a), d.ms(b), fmt.Sprintf("%.1fx", float64(a)/float64(max(b, 1))))
	}
	row("", names[0], names[1], "better by")
	row("cached prompt tokens",
		fmt.Sprintf("%.1f%%", 100*t[0].cachedShare()), fmt.Sprintf("%.1f%%", 100*t[1].cachedShare()), "")
	row("prompt tokens to compute", fmt.Sprint(t[0].prompt-t[0].cached), fmt.Sprint(t[1].prompt-t[1].cached),
		fmt.Sprintf("%.1fx", float64(t[0].prompt-t[0].cached)/float64(max(t[1].prompt-t[1].cached, 1))))
	times("time to first token, mean", (*tally).mean)
	times("p50", func(t *tally) time.Duration { return t.quantile(0.50) })
	times("p99", func(t *tally) time.Duration { return t.quantile(0.99) })
	row("requests per replica", t[0].perTarget(), t[1].perTarget(), "")
	tw.Flush()
}

// ms gives a measured time in the engines' time.
func (d demo) ms(t time.Duration) string {
	return fmt.Sprintf("%.0f ms", 1e3*t.Seconds()*d.speed)
}
