package main

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/warmroute/router/disagg"
)

// disaggRows measures the bodies for prefill and decode engines, of a chat of 14 KB that is full of quotes.
func disaggRows(t *table, o *options) error {
	t.say("disagg: bodies")
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` +
		strings.Repeat(`Hello, \"you\" there. `, 640) +
		`"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":256}`)
	params := []byte(`{"do_remote_prefill":true,"remote_block_ids":[[1,2,3]],"remote_engine_id":"e","remote_host":"h"}`)
	buf := make([]byte, 0, len(body)+1024)
	const calls = 300
	var failed error
	took := func(f func() error) func() time.Duration {
		return func() time.Duration {
			return pass(calls, func(int) {
				if err := f(); err != nil {
					failed = err
				}
			}).p(.5)
		}
	}
	names := []string{"NIXLPrefill", "StoredPrefill", "WithParams", "WithBootstrap", "Check"}
	got := best(o.reps,
		took(func() (err error) { _, err = disagg.NIXLPrefill(buf, body); return err }),
		took(func() (err error) { _, err = disagg.StoredPrefill(buf, body); return err }),
		took(func() (err error) { _, err = disagg.WithParams(buf, body, params); return err }),
		took(func() (err error) { _, err = disagg.WithBootstrap(buf, body, "10.0.0.1", 8998, 1<<62); return err }),
		took(func() error { return disagg.Check(body) }),
		took(func() error { json.Valid(body); return nil }),
	)
	valid := got[len(names)]
	for i, name := range names {
		t.check("disagg."+name+", 14 KB body, p50", ">= 4x faster than json.Valid", ratio(valid, got[i]) >= 4,
			"%.1fx faster (%.1f us against %.0f us)", ratio(valid, got[i]), us(got[i]), us(valid))
	}
	return failed
}
