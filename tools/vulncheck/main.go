// Command vulncheck runs govulncheck on modules, and says by name that it was
// skipped if the vulnerability database does not answer:
//
//	vulncheck -govulncheck PATH [-db URL] MODULE_DIR...
//
// The exit status is 1 if a module calls vulnerable code, or if govulncheck
// fails although the database answers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	c := checker{out: os.Stdout}
	flag.StringVar(&c.program, "govulncheck", "govulncheck", "`path` of govulncheck")
	flag.StringVar(&c.db, "db", "https://vuln.go.dev", "`URL` of the database: http, https or file")
	flag.DurationVar(&c.wait, "wait", 10*time.Second, "most `time` for the database to answer")
	flag.DurationVar(&c.most, "most", 5*time.Minute, "most `time` for one module")
	flag.Parse()
	if err := c.run(context.Background(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

type checker struct {
	out         io.Writer
	program, db string
	wait, most  time.Duration
}

func (c *checker) run(ctx context.Context, modules []string) error {
	if err := c.answers(ctx); err != nil {
		fmt.Fprintf(c.out, "skipped: govulncheck: its database does not answer: %v\n", err)
		return nil
	}
	var failed []string
	for _, dir := range modules {
		fmt.Fprintln(c.out, "govulncheck", dir)
		err := c.module(ctx, dir)
		if err == nil {
			continue
		}
		if gone := c.answers(ctx); gone != nil {
			fmt.Fprintf(c.out, "skipped: govulncheck of %s: its database answers no more: %v\n", dir, gone)
			continue
		}
		failed = append(failed, fmt.Sprintf("%s: %v", dir, err))
	}
	if failed != nil {
		return errors.New(strings.Join(failed, "\n"))
	}
	return nil
}

// answers tries to read the smallest page of the database, as govulncheck reads it.
func (c *checker) answers(ctx context.Context) error {
	u, err := url.Parse(c.db)
	if err != nil {
		return err
	}
	if u.Scheme == "file" {
		_, err := os.Stat(u.Path)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("index/db.json.gz").String(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return err
}

// foundSome is how govulncheck exits when it found something.
const foundSome = 3

func (c *checker) module(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, c.most)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, "-C", dir, "-db", c.db, "./...")
	cmd.Stdout, cmd.Stderr = c.out, c.out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var e *exec.ExitError
	if errors.As(err, &e) && e.ExitCode() == foundSome {
		return errors.New("vulnerabilities were found, see above")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("not done in %v", c.most)
	}
	return err
}
