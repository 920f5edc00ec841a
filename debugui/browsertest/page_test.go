//go:build unix

package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/vllmtest"
)

// TestPage watches a fleet as things happen to it.
func TestPage(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	f := startFleet(t, 4, debugui.Config{})
	f.subscribed()
	p := b.open(t, f.url)
	p.look(1440, 900, "light")
	p.wait("that it is live", `document.querySelector("#live")?.textContent === "Live"`)
	p.wait("four targets", `document.querySelectorAll("#targets tbody tr").length === 4`)

	f.chats(6, 3, "clerk")
	p.wait("decisions with candidates", `document.querySelector("#decisions .why")`)
	p.wait("cached share", `[...document.querySelectorAll("#targets .spark")].length > 0`)
	p.wait("live streams",
		`[...document.querySelectorAll("#streams tbody tr")].some(r => /live|partial/.test(r.innerText)) && document.querySelectorAll("#streams tbody tr").length === 4`)

	f.burst("timetable", 40)
	p.wait("a spill", `[...document.querySelectorAll("#decisions .badge")].some(b => b.textContent === "spill") && tile("Spills") > 0`)
	shoot(p, "spill")

	gapped := f.replicas[1]
	f.direct(gapped, "before")
	n := gapped.Events().Next()
	gapped.Events().Drop(func(seq uint64) bool { return seq == n })
	for i := 0; gapped.Events().Next() < n+2; i++ {
		f.direct(gapped, fmt.Sprint("missing ", i))
	}
	p.wait("a gap", `[...document.querySelectorAll("#events li")].some(e => e.innerText.includes("gap in the events: 1 message is missing") && e.innerText.includes(`+jsHost(gapped)+`))`)

	dead := f.replicas[2]
	if err := dead.SetFaults(vllmtest.Faults{Refuse: true, Probes: true}); err != nil {
		t.Fatal(err)
	}
	for i, seen := 0, false; !seen && i < 50; i++ {
		// Nothing of it is anywhere, so it goes to the one with the fewest prompts.
		if _, err := f.ask(body(turn{"user", strings.Repeat(string(rune('A'+i)), 400)})); err != nil {
			t.Fatal(err)
		}
		p.eval(`[...document.querySelectorAll("#targets tbody tr")].some(r => r.innerText.includes("cooling"))`, &seen)
	}
	p.wait("a dead replica", `[...document.querySelectorAll("#targets tbody tr")].some(r => r.innerText.includes(`+
		jsHost(dead)+`) && r.innerText.includes("cooling"))`)
	p.wait("what happened to it", `[...document.querySelectorAll("#events li")].some(e => e.innerText.includes(`+
		jsHost(dead)+`) && e.innerText.includes("is cooling"))`)
	p.wait("that this is said aloud", `document.querySelector("#announce").textContent !== ""`)
	p.wait("what failed", `tile("Failed") > 0`)
	shoot(p, "dead")
	if w := p.complaints(); len(w) > 0 {
		t.Errorf("the page complains: %q", w)
	}
}

func jsHost(s *vllmtest.Server) string { return fmt.Sprintf("%q", s.Addr()) }

// shoot takes the pictures that people look at.
func shoot(p *tab, name string) {
	p.t.Helper()
	for _, v := range []struct {
		width  int
		scheme string
	}{{1440, "light"}, {1440, "dark"}, {768, "dark"}, {360, "light"}} {
		p.look(v.width, 900, v.scheme)
		p.eval("scrollTo(0, 0)", nil)
		p.shoot(fmt.Sprintf("%s-%d-%s", name, v.width, v.scheme))
	}
	p.look(1440, 900, "light")
}
