package disagg_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/vllmtest"
)

const path = "/v1/chat/completions"

// fleet is a group of replicas: p0, p1 … prefill, d0, d1 … decode.
type fleet struct {
	t     testing.TB
	view  *loadview.View
	hub   *vllmtest.Hub
	at    map[string]*vllmtest.Server
	names map[string]string // by ID
	split *disagg.Splitter
	cfg   disagg.Config
}

// newFleet starts the replicas and makes a Splitter of cfg.
func newFleet(t testing.TB, protocol disagg.Protocol, prefill, decode int, cfg disagg.Config) *fleet {
	t.Helper()
	f := &fleet{t: t, hub: new(vllmtest.Hub), at: map[string]*vllmtest.Server{}, names: map[string]string{}}
	places := map[string]disagg.Place{}
	var members []loadview.Member
	add := func(name string, role disagg.Role) {
		r := vllmtest.NewServer(vllmtest.Config{
			TimeScale: 0.001, ReplyTokens: 8, Blocks: 4096,
			Transfer: &vllmtest.Transfer{Hub: f.hub, Protocol: string(protocol), Decodes: role == disagg.Decode},
		})
		t.Cleanup(r.Close)
		f.at[name], f.names[r.URL] = r, name
		places[r.URL] = disagg.Place{Role: role}
		members = append(members, loadview.Member{ID: r.URL})
	}
	for i := range prefill {
		add(fmt.Sprintf("p%d", i), disagg.Prefill)
	}
	for i := range decode {
		add(fmt.Sprintf("d%d", i), disagg.Decode)
	}
	var err error
	if f.view, err = loadview.New(loadview.Config{}); err != nil {
		t.Fatal(err)
	}
	if err = f.view.Set(members); err != nil {
		t.Fatal(err)
	}
	s, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Router = router.New(s, f.view, router.Options{Attempts: 4, Backoff: -1, FailOpen: true})
	cfg.Protocol = protocol
	cfg.Place = func(t router.Target) disagg.Place { return places[t.ID] }
	if f.split, err = disagg.New(cfg); err != nil {
		t.Fatal(err)
	}
	f.cfg = cfg
	return f
}

func (f *fleet) fault(name string, x vllmtest.Faults) {
	f.t.Helper()
	if err := f.at[name].SetFaults(x); err != nil {
		f.t.Fatal(err)
	}
}

// body returns a chat with a prompt of about so many tokens, which begins with name.
func body(name string, tokens int) []byte {
	return fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%s %s"}],"stream":true,`+
		`"stream_options":{"include_usage":true},"max_tokens":8}`, name, strings.Repeat("abc ", tokens))
}

// answer is a reply as the client got it.
type answer struct {
	text  string
	usage prompt.Usage
	from  string // the decode target
	tries int
}

// ask sends a body, and reports the reply.
func (f *fleet) ask(ctx context.Context, b []byte) (answer, error) {
	var a answer
	p, err := prompt.FromRequest(path, http.Header{}, b)
	if err != nil {
		return a, err
	}
	err = f.split.Do(ctx, p, disagg.Request{Path: path, Body: b},
		func(ctx context.Context, at *disagg.Attempt) (router.Outcome, error) {
			a.tries++
			t := at.Lease.Decision().Target
			a.from = f.names[t.ID]
			req, err := http.NewRequestWithContext(ctx, "POST", t.ID+path, bytes.NewReader(at.Body))
			if err != nil {
				return router.Outcome{}, err
			}
			req.Header = at.Header.Clone()
			resp, err := f.at[a.from].Client().Do(req)
			if err != nil {
				return router.Outcome{}, err
			}
			defer resp.Body.Close()
			rep := prompt.ReplyTo(path, p)
			buf := make([]byte, 4096)
			for {
				n, err := resp.Body.Read(buf)
				_, _ = rep.Write(buf[:n])
				if resp.StatusCode == 200 && rep.Begun() {
					at.FirstToken()
				}
				if err == io.EOF {
					break
				}
				if err != nil {
					o := rep.Outcome(resp.StatusCode, resp.Header)
					o.Stage, o.Status = 0, 0
					return o, err
				}
			}
			a.text, a.usage = rep.Text(), rep.Usage()
			return rep.Outcome(resp.StatusCode, resp.Header), nil
		})
	return a, err
}

// idle checks that nothing is counted anywhere, and that no replica has read blocks of other prompts.
func (f *fleet) idle() {
	f.t.Helper()
	for _, s := range f.view.Snapshot() {
		if l := s.Target.Load; l.InFlight != 0 || l.Prefill != 0 {
			f.t.Errorf("%s ends with %+v", f.names[s.Target.ID], l)
		}
	}
	for name, s := range f.at {
		if n := s.Stats().WrongBlocks; n != 0 {
			f.t.Errorf("%s read blocks of other prompts %d times", name, n)
		}
	}
}

// eventually waits for ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func post(ctx context.Context, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}
