package main

import (
	"testing"
	"time"
)

// TestNodes: processes on a bus within them hear each other's frames and see each other's load. A busy machine may not
// let one of them hear anything in so short a time, and gets another.
func TestNodes(t *testing.T) {
	o := &options{nodes: 3, warm: 100 * time.Millisecond, measure: 500 * time.Millisecond, out: t.Output()}
	for _, frames := range []bool{true, false} {
		for end := time.Now().Add(2 * time.Minute); ; {
			rs, _, err := o.runNodes(t.Context(), embedded, job{Frames: frames, Rate: 300, FrameSize: 160, Prefix: 4096,
				Unique: 2048})
			if err != nil {
				t.Fatal(err)
			}
			heard := true
			for i, r := range rs {
				t.Logf("node %d did %d, heard %d frames and saw %d changes", i, r.Done, len(r.Frames), len(r.Facts))
				heard = heard && r.Done > 0 && len(r.Frames) > 0 && (frames || len(r.Facts) > 0)
			}
			if heard {
				break
			}
			if time.Now().After(end) {
				t.Fatal("not all nodes hear the others")
			}
		}
	}
}
