package warmroute

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/vllmtest"
)

// full has every subdirective.
const full = `reverse_proxy localhost:1 {
	lb_policy warmroute {
		strategy pipeline {
			load_weight 3
			session_ttl 10m
			max_nodes 1000
		}
		weight localhost:1 2.5
		max_body 1MiB
		max_bodies 1GB
	}
}`

func TestCaddyfileToJSON(t *testing.T) {
	const want = `{
		"policy": "warmroute",
		"strategy": {"name": "pipeline", "options": {"load_weight": 3, "session_ttl": "10m", "max_nodes": 1000}},
		"weights": {"localhost:1": 2.5},
		"max_body": 1048576,
		"max_bodies": 1000000000
	}`
	for site, want := range map[string]string{
		full: want,
		"reverse_proxy localhost:1 {\nlb_policy warmroute\n}":             `{"policy": "warmroute"}`,
		"reverse_proxy localhost:1 {\nlb_policy warmroute cache_aware\n}": `{"policy": "warmroute", "strategy": {"name": "cache_aware"}}`,
	} {
		b, err := adapt("http://localhost {\n" + site + "\n}")
		if err != nil {
			t.Fatal(err)
		}
		i := bytes.Index(b, []byte(`"selection_policy":`))
		if i < 0 {
			t.Fatalf("no policy in %s", b)
		}
		var got, wanted any
		if err := json.NewDecoder(bytes.NewReader(b[i+len(`"selection_policy":`):])).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(wanted, got); d != "" {
			t.Error(d)
		}
	}
}

// TestBadConfig: each error names what is off, and leaves no state behind.
func TestBadConfig(t *testing.T) {
	for _, tc := range []struct{ policy, want string }{
		{"lb_policy warmroute least_work more", "rong argument count"},
		{"lb_policy warmroute {\nstrategy\n}", "rong argument count"},
		{"lb_policy warmroute least_work {\nstrategy cache_aware\n}", "named twice"},
		{"lb_policy warmroute {\nstrategy least_work {\nmiss_weight\n}\n}", "rong argument count"},
		{"lb_policy warmroute {\nstrategy least_work {\nagree 0.1\nagree 0.2\n}\n}", "agree is set twice"},
		{"lb_policy warmroute {\nmax_body much\n}", "max_body"},
		{"lb_policy warmroute {\nmax_bodies 0\n}", "max_bodies"},
		{"lb_policy warmroute {\nweight a\n}", "rong argument count"},
		{"lb_policy warmroute {\nweight a heavy\n}", "weight"},
		{"lb_policy warmroute {\nweight a -1\n}", "weights: a"},
		{"lb_policy warmroute {\nweight a NaN\n}", "weights: a"},
		{"lb_policy warmroute {\nfriend\n}", `"friend"`},
		{"lb_policy warmroute best", `no "best"`},
		{"lb_policy warmroute precise_cache_aware", `no "precise_cache_aware"`},
		{"lb_policy warmroute {\nstrategy least_work {\nthreshold 0.5\n}\n}", `no "threshold"`},
		{"lb_policy warmroute {\nstrategy random {\nrand 1\n}\n}", `no "rand"`},
		{"lb_policy warmroute {\nstrategy least_work {\nmiss_weight much\n}\n}", "miss_weight"},
		{"lb_policy warmroute {\nstrategy least_work {\nmax_nodes 1.5\n}\n}", "max_nodes"},
		{"lb_policy warmroute {\nstrategy pipeline {\nsession_ttl soon\n}\n}", "session_ttl"},
		{"lb_policy warmroute {\nstrategy least_work {\nmiss_weight -1\n}\n}", "MissWeight"},
		{"lb_policy warmroute\ntransport fastcgi", "FastCGI|fastcgi"},
	} {
		config, err := adapt("{\nadmin off\npersist_config off\nauto_https off\nlog {\noutput discard\n}\n}\nhttp:// " +
			"{\nbind unix/" + t.TempDir() + "/s\nreverse_proxy localhost:1 {\n" + tc.policy + "\n}\n}")
		if err == nil {
			if err = caddy.Load(config, true); err == nil {
				caddy.Stop()
			}
		}
		found := false
		for w := range strings.SplitSeq(tc.want, "|") {
			found = found || err != nil && strings.Contains(err.Error(), w)
		}
		if !found {
			t.Errorf("%q: %v, want %s", tc.policy, err, tc.want)
		}
		if s := status(); len(s) != 0 {
			t.Fatalf("%q left %+v", tc.policy, s)
		}
	}
}

// TestStrategies: each can be named, with an option if it has any, and serves.
func TestStrategies(t *testing.T) {
	rs, addrs := fleetOf(t, 2, vllmtest.Config{TimeScale: 0.01})
	for name, option := range map[string]string{
		"least_work":      "miss_weight 4",
		"cache_aware":     "threshold 0.4",
		"pipeline":        "session_ttl 1m",
		"consistent_hash": "load_factor 1.5",
		"least_load":      "",
		"power_of_two":    "",
		"round_robin":     "",
		"random":          "",
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, "reverse_proxy "+addrs+" {\nlb_policy warmroute {\nstrategy "+name+" {\n"+option+"\n}\nweight "+
				rs[0].Addr()+" 2\n}\n}")
			for range 4 {
				if a := h.ask(context.Background(), body(true, 3, message{"user", "hello"}), nil); a.status != http.StatusOK ||
					a.err != nil {
					t.Errorf("%+v", a)
				}
			}
			if s := h.idle(t); s.Strategy != name || s.Finished != 4 {
				t.Errorf("%+v", s)
			}
		})
	}
}
