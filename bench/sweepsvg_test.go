package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"
)

// TestSweepSVG: what is drawn is XML, has a cell for each pair of constants and
// frames the default, as the committed drawing does.
func TestSweepSVG(t *testing.T) {
	var b bytes.Buffer
	all := []swept{{part: parts[0], scores: map[string]score{variant(5, 0.2): {mean: 1.02, worst: 1.5}}},
		{part: parts[1], scores: map[string]score{}}}
	if err := writeSweep(&b, all); err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("sweep.svg")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		svg   string
		parts int
	}{"drawn": {b.String(), 2}, "committed": {string(committed), len(parts)}} {
		d := xml.NewDecoder(strings.NewReader(c.svg))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if n, want := strings.Count(c.svg, `class="cell"`), c.parts*len(missWeights)*len(contextWeights); n != want {
			t.Errorf("%s: %d cells, want %d", name, n, want)
		}
		if n := strings.Count(c.svg, `class="pick"`); n != c.parts {
			t.Errorf("%s: %d are framed", name, n)
		}
	}
	if !strings.Contains(b.String(), ">1.020</text>") {
		t.Error("a score is not there")
	}
}
