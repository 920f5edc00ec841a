package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmroute/router/internal/ports"
)

// leastUncached is the bound of the gateway, in tokens: less than a turn of the chats, so that a turn is handed over
// to an engine that has the turns before it.
const leastUncached = 64

// chats plays conversations through the gateway with roles, and compares each reply with the third engine's.
func (x *pair) chats(ctx context.Context) (err error) {
	address, err := ports.Free()
	if err != nil {
		return err
	}
	var b strings.Builder
	targets := ""
	for _, e := range []*engine{x.p, x.d} {
		role := map[*engine]string{x.p: "prefill", x.d: "decode"}[e]
		fmt.Fprintf(&b, "[[providers]]\nname = %q\napi_base = %q\nrole = %q\n", e.name, e.url(), role)
		targets += fmt.Sprintf("[[routes.targets]]\nprovider = %q\nmodel = %q\n", e.name, modelName)
	}
	fmt.Fprintf(&b, "[[routes]]\nmodel = %q\n[routes.disagg]\nprotocol = \"nixl\"\nmin_uncached = %d\npinned_secs = %g\n"+
		"decode_timeout_secs = 120\n%s", modelName, leastUncached, lease.Seconds(), targets)
	file := filepath.Join(x.s.fleet.dir, "split.toml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return err
	}
	p, err := start("gateway", x.s.fleet.dir, x.s.fleet.surroundings(), filepath.Join(x.s.fleet.dir, "gateway"),
		"-listen", address, "-drain-delay", "0s", "-grace", "5s", "-config", file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	url := "http://" + address
	if err := p.await(ctx, url+"/healthz", time.Minute); err != nil {
		return err
	}
	before, err := counts(ctx, x.d)
	if err != nil {
		return err
	}
	w, same, requests := newWave(31, 4), 0, 0
	for range w.left() {
		body, err := w.body()
		if err != nil {
			return err
		}
		got, err := send(ctx, url, body)
		if err != nil {
			return fmt.Errorf("a chat through the gateway: %w; it wrote:\n%s", err, p.said())
		}
		want, err := send(ctx, x.b.url(), body)
		if err != nil {
			return err
		}
		requests++
		if got.text == want.text && len(got.tokens) == len(want.tokens) {
			same++
		}
		w.done(got.text)
	}
	after, err := counts(ctx, x.d)
	if err != nil {
		return err
	}
	page, err := get(ctx, url+"/metrics")
	if err != nil {
		return err
	}
	of := func(source string) float64 {
		k := "vllm:prompt_tokens_by_source_total " + source
		return after[k] - before[k]
	}
	var prefills, skipped float64
	for l := range strings.Lines(page) {
		name, value, _ := strings.Cut(l, "} ")
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(name, "warmroute_disagg_prefills_total{") && strings.Contains(name, `"finished"`):
			prefills += v
		case strings.HasPrefix(name, "warmroute_disagg_skipped_total{"):
			skipped += v
		}
	}
	x.facts = append(x.facts, fmt.Sprintf("NIXL, chats through the gateway: %d requests, %g prompts computed elsewhere "+
		"and %g by the decode engine; of its prompt tokens %g came by transfer, %g were in its cache, and it computed %g; "+
		"%d texts equal to one engine's", requests, prefills, skipped, of("external_kv_transfer"), of("local_cache_hit"),
		of("local_compute"), same))
	say("%s", x.facts[len(x.facts)-1])
	if same != requests || prefills < 1 || int(prefills+skipped) < requests {
		x.lost = append(x.lost, x.facts[len(x.facts)-1])
	}
	return nil
}
