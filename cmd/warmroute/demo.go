package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/warmroute/router/config"
	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/share"
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
	gateways int           // of the last chapter
	live     *debugui.Page // shows it; nil: nothing does
	stays    bool          // the result stays although nobody is at a terminal
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
	gateways: 8,
}

// runDemo runs the demo with a live page at an address, "" for some port of this
// machine's own. For somebody at a terminal its result stays there until ctx is done.
func runDemo(ctx context.Context, out io.Writer, address string) error {
	return standardDemo.show(ctx, out, address)
}

func (d demo) show(ctx context.Context, out io.Writer, address string) (err error) {
	if d.live, err = debugui.New(debugui.Config{Title: "Warmroute demo", Speed: d.speed}); err != nil {
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
	fmt.Fprintf(out, "Watch it live: %s\n\n", url)
	if err := d.run(ctx, out); err != nil {
		return err
	}
	if !d.stays && !interactive() {
		return nil
	}
	fmt.Fprintf(out, "\nThe result stays on the page, %s, until Ctrl-C.\n", url)
	<-ctx.Done()
	return nil
}

// interactive reports whether somebody is at a terminal, who can end the program.
func interactive() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// run plays the three chapters and prints the result of each.
func (d demo) run(ctx context.Context, out io.Writer) error {
	all := d.workload(d.chat.Conversations)
	half := d.workload(max(d.chat.Conversations/2, 1))
	short := d
	short.chat.Turns = max(d.chat.Turns/3, 2)
	brief := short.workload(d.chat.Conversations) // so that chats begin after the replica has returned
	fmt.Fprintf(out, "%d simulated replicas (a 70B model on two H100s; time runs %gx as fast), %d tokens of cache each\n",
		d.replicas, d.speed, d.blocks*16)
	fmt.Fprintf(out, "%d chats, each about a document of %d KiB, over %d system prompts of %d KiB; %d users at a time, "+
		"%d requests over HTTP\n",
		len(all.Conversations), d.document>>10, d.chat.Systems, d.chat.SystemBytes>>10, d.users, len(all.Requests))
	fmt.Fprint(out, "Times to the first token are the simulated engines' own: a busy machine changes none of them.\n\n")

	s := d.chapters(all, brief, half)
	s.present()
	for i, play := range []func(context.Context, io.Writer, *chapter) error{d.compare, d.lose, d.several} {
		if i > 0 {
			fmt.Fprintln(out)
		}
		c := s.all[i]
		if err := play(ctx, out, c); err != nil {
			return err
		}
		c.print(out)
	}
	fmt.Fprint(out, `
With engines of your own:

    warmroute -listen :8080 -target http://HOST:8000 -target http://HOST:8001
    curl -i localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \
        -d '{"model":"MODEL","messages":[{"role":"user","content":"hello"}]}'

The reply's X-Warmroute-* headers say which target answered and why.
`)
	return nil
}

// workload returns n chats, each with its document before the first question.
func (d demo) workload(n int) *workload.Workload {
	c := d.chat
	c.Conversations = n
	w := workload.Chat(c)
	documents := workload.Long(workload.LongConfig{
		Seed: c.Seed, Documents: len(w.Conversations), DocumentBytes: d.document, Questions: 1,
	})
	for i, c := range w.Conversations {
		c.Messages[1].Content = documents.Conversations[i].Messages[0].Content + "\n\n" + c.Messages[1].Content
	}
	return w
}

// compare plays the same chats with round_robin and with least_work, each on fresh replicas.
func (d demo) compare(ctx context.Context, out io.Writer, c *chapter) error {
	for i, name := range []string{roundrobin.Name, leastwork.Name} {
		p := phase{name: name, strategy: name, gateways: 1, work: c.work, chapter: c, column: i}
		if err := d.phase(ctx, out, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	c.end()
	return nil
}

// lose plays chats with least_work while a replica dies, with all of its cache, and returns.
func (d demo) lose(ctx context.Context, out io.Writer, c *chapter) error {
	victim := 1 % d.replicas
	n := len(c.work.Requests)
	p := phase{name: "a replica dies", strategy: leastwork.Name, gateways: 1, work: c.work, chapter: c, lossy: true,
		users: max(d.users/2, 1)}
	p.strike = func(done int, replicas []*vllmtest.Server) error {
		switch done {
		case n / 3:
			c.next()
			if err := replicas[victim].SetFaults(vllmtest.Faults{Refuse: true, Probes: true}); err != nil {
				return err
			}
			return replicas[victim].Restart()
		case 2 * n / 3:
			c.next()
			return replicas[victim].SetFaults(vllmtest.Faults{})
		}
		return nil
	}
	if err := d.phase(ctx, out, p); err != nil {
		return fmt.Errorf("a replica dies: %w", err)
	}
	c.end()
	return nil
}

// several plays chats through several gateways, each request through any of them: first each knows only what it sent
// itself, then they share their view.
func (d demo) several(ctx context.Context, out io.Writer, c *chapter) error {
	for i, name := range []string{fmt.Sprintf("%d gateways alone", d.gateways),
		fmt.Sprintf("%d gateways sharing", d.gateways)} {
		p := phase{name: name, strategy: leastwork.Name, gateways: d.gateways, shared: i == 1, work: c.work, chapter: c,
			column: i}
		if err := d.phase(ctx, out, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	c.end()
	return nil
}

// phase is a part of a demo: a fleet of fresh replicas, its gateways and its users.
type phase struct {
	name     string // on the page, and of the progress
	strategy string
	gateways int
	shared   bool // the gateways share their view
	work     *workload.Workload
	chapter  *chapter
	column   int // the chapter's that it begins with
	users    int // 0: the demo's

	lossy  bool // requests may fail, and are counted
	strike func(done int, replicas []*vllmtest.Server) error
}

// replica returns the name of a replica.
func replicaName(i int) string { return fmt.Sprintf("replica-%d", i+1) }

// file returns the configuration of a gateway before replicas.
func (p phase) file(replicas []*vllmtest.Server) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if p.lossy { // a replica is found to be back; others do not fail, however late the machine is
		line("[health_probe]\nenabled = true\ninterval_secs = 0.1\ntimeout_secs = 30")
		line("[health]\ncool_base = \"200ms\"\ncool_max = \"400ms\"")
	}
	for i, s := range replicas {
		line("[[providers]]\nname = %s\napi_base = %s", quote(replicaName(i)), quote(s.URL))
	}
	line("[[routes]]\nmodel = \"*\"\nstrategy = %s", quote(p.strategy))
	for i := range replicas {
		line("[[routes.targets]]\nprovider = %s", quote(replicaName(i)))
	}
	return b.String()
}

// phase plays p.
func (d demo) phase(ctx context.Context, out io.Writer, p phase) (err error) {
	p.chapter.begin(p.column)
	ctx, stop := context.WithCancel(ctx)
	var after []func()
	defer func() {
		stop()
		for i := range after { // what was begun last ends first
			after[len(after)-1-i]()
		}
	}()
	var replicas []*vllmtest.Server
	for i := range d.replicas {
		s, err := vllmtest.New(vllmtest.Config{
			Model:       p.work.Model,
			Blocks:      d.blocks,
			ReplyTokens: d.reply,
			TimeScale:   1 / d.speed,
			FirstToken:  p.chapter.firstToken,
		})
		if err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
		after = append(after, s.Close)
		replicas = append(replicas, s)
	}
	bus := share.NewMemory()
	users := &players{demo: d, phase: p, replicas: replicas}
	for g := range p.gateways {
		url, end, e := d.gateway(p, g, bus, replicas)
		if e != nil {
			return e
		}
		after = append(after, func() { err = errors.Join(err, end()) })
		users.urls = append(users.urls, url)
	}
	return users.play(ctx, newProgress(out, p.name, len(p.work.Requests)))
}

// gateway starts gateway number g of p. end ends it.
func (d demo) gateway(p phase, g int, bus share.Bus, replicas []*vllmtest.Server) (url string, end func() error,
	err error) {
	service, err := newService(slog.New(slog.DiscardHandler))
	if err != nil {
		return "", nil, err
	}
	if d.live != nil && g == 0 { // it shows the first one
		service.live = &livePage{Page: d.live, name: func(string) string { return p.name }}
	}
	o := service.options()
	if p.shared {
		service.sharing.kind = "memory"
		service.sharing.node, err = share.New(share.Config{
			Bus: bus, Secret: "the secret of a demonstration", Name: fmt.Sprintf("gateway-%d", g+1),
		})
		if err != nil {
			return "", nil, err
		}
		o.Peers = service.sharing.node
	}
	f, err := config.Parse([]byte(p.file(replicas)), o)
	if err != nil {
		return "", nil, err
	}
	if err := service.build(f, o); err != nil {
		return "", nil, err
	}
	h, err := NewHandler(Config{service: service, Parser: prompt.Parser{Tenant: tenant}})
	if err != nil {
		service.close()
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		service.close()
		return "", nil, err
	}
	serving, stop := context.WithCancel(context.Background())
	ran, served := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ran)
		service.run(serving, "", 0, nil)
	}()
	go func() {
		served <- (&server{log: slog.New(slog.DiscardHandler), grace: 5 * time.Second}).run(serving, ln, h)
	}()
	return "http://" + ln.Addr().String(), func() error {
		stop()
		err := <-served
		<-ran
		service.close()
		return err
	}, nil
}

// print writes the result of a chapter.
func (c *chapter) print(out io.Writer) {
	v := c.state()
	fmt.Fprintf(out, "\n%s\n%s\n\n", v.Title, v.About)
	tw := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(label string, cells ...string) { fmt.Fprintln(tw, label+"\t"+strings.Join(cells, "\t")+"\t") }
	heads := make([]string, 0, len(v.Columns)+1)
	for _, col := range v.Columns {
		heads = append(heads, col.Name)
	}
	row("", append(heads, "")...)
	for _, r := range v.Rows {
		row(r.Label, append(r.Values, r.Better)...)
	}
	tw.Flush()
	fmt.Fprintf(out, "\n%s\n", v.Verdict)
}
