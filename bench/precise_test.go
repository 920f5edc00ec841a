package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// coming is a trace of sessions that come back in turn, when a fleet of 60 blocks
// has forgotten them.
func coming(t *testing.T) string {
	var b strings.Builder
	for i := range 400 {
		s := 1000 * (i%20 + 1)
		fmt.Fprintf(&b,
			`{"time": %.1f, "session": "s%d", "blocks": [%d, %d, %d, %d], "block_tokens": 512, "output_tokens": 20}`+"\n",
			0.3*float64(i), s, s, s+1, s+2, s+3)
	}
	return write(t, "coming.jsonl", b.String())
}

// TestPrecise: the table has a row for each policy and number of gateways, the same
// ones on each run. Engines' events are right where memory alone would believe that
// all is cached; memory that reported tokens correct comes near them.
func TestPrecise(t *testing.T) {
	var o options
	if err := o.flags().Parse([]string{"-seeds", "1", "-gateways", "2", "-replicas", "2", "-policies",
		"least_work,least_work_index", "-data", t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	scenes := []preciseScene{{coming(t), 1, 30}, {"mooncake-conversation", 1, 0}}
	var tables [2]string
	for i := range tables {
		var b bytes.Buffer
		if err := o.precise(context.Background(), scenes, &b, io.Discard); err != nil {
			t.Fatal(err)
		}
		tables[i] = b.String()
	}
	if tables[0] != tables[1] {
		t.Errorf("twice the same:\n%s\n%s", tables[0], tables[1])
	}
	right := map[string]float64{}
	for line := range strings.Lines(tables[0]) {
		f := strings.Split(line, " | ")
		if len(f) == 10 && f[0] == "| 2" {
			v, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				t.Fatal(err)
			}
			right[f[1]] = v
		}
	}
	if len(right) != 2 || right["least_work_index"] < 0.95 || right["least_work"] < 0.8 ||
		right["least_work"] >= right["least_work_index"] {
		t.Errorf("right: %v\n%s", right, tables[0])
	}
}
