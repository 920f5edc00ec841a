package loadview_test

import (
	"io"
	"testing"

	"github.com/warmroute/router"
)

// TestStandsOut: a member that fails every other request, and so never three in a row, is taken out if its neighbours
// serve theirs, and is not if they fail as often.
func TestStandsOut(t *testing.T) {
	good := router.Outcome{Status: 200}
	broke := router.Outcome{Status: 200, Err: io.ErrUnexpectedEOF}
	cooled := func(others router.Outcome) bool {
		v := three(t)
		for i := range 60 {
			if i%2 == 0 {
				answer(t, v, "a", "", broke)
				answer(t, v, "b", "", others)
				answer(t, v, "c", "", others)
			} else {
				answer(t, v, "a", "", good)
				answer(t, v, "b", "", good)
				answer(t, v, "c", "", good)
			}
			for _, s := range v.Snapshot() {
				if s.Target.State == router.Cooling {
					if s.Target.ID != "a" {
						t.Errorf("%s is cooled", s.Target.ID)
					}
					return true
				}
			}
		}
		return false
	}
	if !cooled(good) {
		t.Error("a member that fails every other request is not taken out")
	}
	if cooled(broke) {
		t.Error("where all fail as often, one is taken out")
	}
}
