package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

const explainHead = `Usage: warmroute explain [FLAGS] [FILE]

Ranks the targets of a running gateway, which has a -debug address, for the body in the file or on standard input. Nothing
is sent to a target, counted or kept.

Example:
  echo '{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}' | warmroute explain
`

// maxExplained bounds the body, and the reply.
const maxExplained = 32 << 20

// ranked is the reply of the live page.
type ranked struct {
	Candidates []struct {
		Target, State, Reason     string
		Cached, Length            int
		Unit                      string
		Score                     *float64
		Known, Chosen             bool
		InFlight, Queued, Prefill int
	}
	Of          int
	Length      int
	Unit, Model string
	Note        string
}

// runExplain asks a gateway's live page.
func runExplain(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("warmroute explain", flag.ContinueOnError)
	page := fs.String("debug", "http://127.0.0.1:6060", "`URL` of the gateway's live page")
	route := fs.String("route", "", "the route's `model` in the file (empty: the first)")
	path := fs.String("path", "/v1/chat/completions", "`path` of the API that the body is for")
	if err := parse(fs, args, stderr, plainUsage(explainHead)); err != nil {
		return err
	}
	if fs.NArg() > 1 {
		return usagef("unexpected argument %q", fs.Arg(1))
	}
	in := stdin
	if name := fs.Arg(0); name != "" && name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	body, err := io.ReadAll(io.LimitReader(in, maxExplained+1))
	if err != nil {
		return err
	}
	if len(body) > maxExplained {
		return usagef("the body has more than %d bytes", maxExplained)
	}
	ask, err := json.Marshal(map[string]string{"route": *route, "path": *path, "body": string(body)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(*page, "/")+"/explain",
		bytes.NewReader(ask))
	if err != nil {
		return &usageError{err}
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("the gateway's live page does not answer (it needs -debug): %w", err)
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxExplained))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		line, _, _ := strings.Cut(string(reply), "\n")
		return fmt.Errorf("%s answers %s: %q", *page, resp.Status, line[:min(len(line), 200)])
	}
	var v ranked
	if err := json.Unmarshal(reply, &v); err != nil {
		return fmt.Errorf("%s answers, but not with a ranking", *page)
	}
	return v.print(stdout)
}

func (v *ranked) print(w io.Writer) error {
	if v.Note != "" {
		fmt.Fprintln(w, v.Note)
	}
	fmt.Fprintf(w, "A prompt of %d %s", v.Length, v.Unit)
	if v.Model != "" {
		fmt.Fprintf(w, " for %s", v.Model)
	}
	fmt.Fprintf(w, ", %d targets\n", v.Of)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TARGET\tSTATE\tCACHED\tIN FLIGHT\tQUEUED\tPREFILL\tSCORE\tREASON")
	for _, c := range v.Candidates {
		score, queued, mark := "-", "-", ""
		if c.Score != nil {
			score = fmt.Sprintf("%.4g", *c.Score)
		}
		if c.Known {
			queued = fmt.Sprint(c.Queued)
		}
		if c.Chosen {
			mark = " (picked)"
		}
		fmt.Fprintf(t, "%s%s\t%s\t%d of %d %s\t%d\t%s\t%d\t%s\t%s\n", c.Target, mark, c.State, c.Cached, c.Length, c.Unit,
			c.InFlight, queued, c.Prefill, score, c.Reason)
	}
	return t.Flush()
}
