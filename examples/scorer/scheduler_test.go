package scorer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/vllmtest"
)

// scheduler is a plug-in scheduler as gateways have them: profiles of scorers with
// weights, the greatest sum wins, and plug-ins are notified. Its endpoints and
// their counters are its own; a loadview.View keeps them here.
type scheduler struct {
	fleet  *loadview.View
	plugin *Plugin // nil: the queue alone decides
	client *http.Client
	again  func() // if not nil: receives each attempt that failed
}

// idlest is a scorer of the scheduler's own.
func idlest(endpoints []router.Target) []float64 {
	scores := make([]float64, len(endpoints))
	for i, e := range endpoints {
		scores[i] = 1 / float64(1+e.Load.InFlight)
	}
	return scores
}

// schedule is one scheduling cycle, and counts its choice.
func (s *scheduler) schedule(ctx context.Context, p router.Prompt, tried []string) (c *Choice, id string,
	f router.Flight, err error) {
	d, f, err := s.fleet.Choose(ctx, func(all []router.Target) (router.Decision, error) {
		all = slices.DeleteFunc(slices.Clone(all), func(t router.Target) bool { return slices.Contains(tried, t.ID) })
		endpoints := all
		if s.plugin != nil {
			endpoints = s.plugin.Filter(all)
		}
		if len(endpoints) == 0 {
			return router.Decision{}, &router.NoTargetError{Offered: len(all)}
		}
		total := idlest(endpoints)
		if s.plugin != nil {
			for i, score := range s.plugin.Score(ctx, p, endpoints) {
				total[i] += 3 * score
			}
		}
		best := endpoints[slices.Index(total, slices.Max(total))]
		if s.plugin != nil {
			c = s.plugin.Chosen(ctx, p, best)
		}
		return router.Decision{Prompt: p, Target: best}, nil
	})
	return c, d.Target.ID, f, err
}

// errBegun says that a reply broke off: nobody else could have served it.
var errBegun = errors.New("broke off in the midst")

// serve sends body to one endpoint after the other until one replies.
func (s *scheduler) serve(ctx context.Context, body string) error {
	p, err := prompt.FromRequest("/v1/chat/completions", nil, []byte(body))
	if err != nil {
		return err
	}
	var tried []string
	var last error
	for {
		c, id, f, err := s.schedule(ctx, p, tried)
		if err != nil {
			return errors.Join(err, last)
		}
		o := s.send(ctx, id, body, func() {
			f.FirstToken()
			if c != nil {
				c.FirstToken()
			}
		})
		f.Done(o)
		if c != nil {
			c.Ended(o)
		}
		if !o.Retryable() {
			return o.Err
		}
		if s.again != nil {
			s.again()
		}
		tried, last = append(tried, id), o.Err
	}
}

func (s *scheduler) send(ctx context.Context, url, body string, first func()) router.Outcome {
	fail := func(status int, err error) router.Outcome {
		if ctx.Err() != nil {
			return router.Outcome{Stage: router.Canceled, Err: err}
		}
		return router.Outcome{Stage: router.Failed, Status: status, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return fail(400, err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fail(0, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fail(resp.StatusCode, errors.New(resp.Status))
	}
	var buf [4 << 10]byte
	n, err := resp.Body.Read(buf[:])
	if n == 0 {
		return fail(0, err)
	}
	first()
	var reply prompt.Reply
	reply.Write(buf[:n])
	if _, err := io.Copy(&reply, resp.Body); err != nil {
		return fail(200, fmt.Errorf("%w: %w", errBegun, err))
	}
	return router.Outcome{Stage: router.Finished, Status: 200, Reply: reply.Text()}
}

// newScheduler returns a scheduler before n replicas; strategy nil: without us.
func newScheduler(t testing.TB, n int, cfg vllmtest.Config, strategy router.Strategy) (*scheduler, []*vllmtest.Server) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	s := &scheduler{client: &http.Client{Transport: transport}}
	var replicas []*vllmtest.Server
	var members []loadview.Member
	for range n {
		r := vllmtest.NewServer(cfg)
		t.Cleanup(r.Close)
		replicas = append(replicas, r)
		members = append(members, loadview.Member{ID: r.URL})
	}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	if strategy != nil {
		if s.plugin, err = New(Config{Strategy: strategy}); err != nil {
			t.Fatal(err)
		}
	}
	c := loadview.Config{}
	if s.plugin != nil {
		c.Trace.Forget = s.plugin.Gone
	}
	if s.fleet, err = loadview.New(c); err != nil {
		t.Fatal(err)
	}
	if err := s.fleet.Set(members); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, m := range s.fleet.Snapshot() {
			if l := m.Target.Load; l.InFlight != 0 || l.Prefill != 0 {
				t.Errorf("at the end: %+v", l)
			}
		}
	})
	return s, replicas
}

// busiest waits until a replica is at work, and returns which has most to do.
func (s *scheduler) busiest() (busiest int) {
	for {
		all := s.fleet.Snapshot()
		for i, m := range all {
			if m.Target.Load.InFlight > all[busiest].Target.Load.InFlight {
				busiest = i
			}
		}
		if all[busiest].Target.Load.InFlight > 0 {
			return busiest
		}
		time.Sleep(time.Millisecond)
	}
}

// p50 returns the median time of serving body n times by each of the schedulers,
// in turns.
func p50(t *testing.T, n int, body string, hosts ...*scheduler) []time.Duration {
	t.Helper()
	took := make([][]time.Duration, len(hosts))
	for range n {
		for i, h := range hosts {
			start := time.Now()
			if err := h.serve(t.Context(), body); err != nil {
				t.Fatal(err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	var out []time.Duration
	for _, d := range took {
		slices.Sort(d)
		out = append(out, d[len(d)/2])
	}
	return out
}
