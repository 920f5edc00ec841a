//go:build unix

package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/vllmtest"
)

// shownStory is a story of which a part runs.
func shownStory(done int) debugui.Story {
	about := "The same chats, first with one strategy, then with the other."
	return debugui.Story{About: about, Chapters: []debugui.Chapter{
		{
			Title: "Cache-aware routing against round robin", About: "Four replicas, 64 chats, on fresh replicas each time.",
			Columns: []debugui.Column{{Name: "round_robin", State: debugui.Over}, {Name: "least_work", State: debugui.Over}},
			Rows: []debugui.Row{
				{Label: "cached prompt tokens", Values: []string{"51.5%", "94.8%"}},
				{Label: "prompt tokens to compute", Values: []string{"3692845", "395533"}, Better: "9.3x better"},
				{Label: "time to first token, mean", Values: []string{"211 ms", "41 ms"}, Better: "5.1x better"},
				{Label: "requests of replica-1 to replica-4", Values: []string{"264 264 264 264", "295 238 264 259"}},
			},
			Verdict: "least_work wins: 94.8% of the prompt tokens came from a cache instead of 51.5%.",
		},
		{
			Title: "A replica dies and returns", About: "After a third of the requests replica-2 dies.",
			Columns: []debugui.Column{{Name: "before", State: debugui.Over},
				{Name: "while it is away", State: debugui.Running, Done: done, Of: 100}, {Name: "when it is back"}},
			Rows: []debugui.Row{{Label: "answered", Values: []string{"176", "12"}}, {Label: "failed", Values: []string{"0"}}},
		},
		{Title: "Eight gateways", Columns: []debugui.Column{{Name: "alone"}, {Name: "sharing"}},
			Rows: []debugui.Row{{Label: "cached prompt tokens"}}},
	}}
}

// layout returns what is wrong with the page's measures: sideways scrolling, empty space to scroll to, a column that is
// cut off.
const layout = `(() => {
	const wrong = [], root = document.documentElement;
	if (root.scrollWidth > innerWidth) wrong.push("the page is " + root.scrollWidth + " px wide of " + innerWidth);
	const end = document.querySelector("main").getBoundingClientRect().bottom + scrollY;
	if (root.scrollHeight > Math.max(innerHeight, end) + 1) wrong.push("the page is " + root.scrollHeight + " px high, and ends at " + end);
	for (const s of document.querySelectorAll(".scroll")) {
		if (!s.checkVisibility()) continue;
		const inner = Math.max(...[...s.children].filter((c) => c.checkVisibility()).map((c) => c.getBoundingClientRect().bottom - s.getBoundingClientRect().top + s.scrollTop));
		if (s.scrollHeight > Math.max(s.clientHeight, inner) + 1) wrong.push((s.getAttribute("aria-labelledby") || s.getAttribute("aria-label")) + " scrolls to " + s.scrollHeight + " px, and ends at " + inner);
		if (s.scrollWidth > s.clientWidth) wrong.push((s.getAttribute("aria-labelledby") || s.getAttribute("aria-label")) + " is " + s.scrollWidth + " px wide of " + s.clientWidth);
	}
	for (const w of innerWidth >= 1280 ? document.querySelectorAll("#decisions .why") : []) {
		const r = w.getBoundingClientRect(), box = w.closest(".scroll").getBoundingClientRect();
		if (r.right > box.right || r.width < 20) wrong.push("a why button ends at " + r.right + " of " + box.right);
	}
	return wrong;
})()`

// TestStory looks at a page with a story, while things happen, on a large and on a small screen.
func TestStory(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	f := startFleet(t, 4, debugui.Config{Title: "Warmroute demo", Speed: 10})
	f.subscribed()
	f.page.Present(shownStory(12))
	p := b.open(t, f.url)
	p.look(1280, 900, "light")
	p.wait("that it is live", `document.querySelector("#live")?.textContent === "Live"`)
	f.chats(6, 3, "clerk")
	if err := f.replicas[1].SetFaults(vllmtest.Faults{Next: 2, Status: 503}); err != nil {
		t.Fatal(err)
	}
	f.chats(4, 2, "porter")
	p.wait("decisions with candidates", `document.querySelectorAll("#decisions .why").length > 3`)
	p.wait("three chapters", `document.querySelectorAll("#story .chapter").length === 3`)
	p.wait("which part runs", `document.querySelector("#story").innerText.includes("12%")`)
	p.wait("who won, and by how much",
		`document.querySelector(".verdict").textContent.includes("least_work wins") && document.querySelector("td.better.good").textContent === "9.3x better"`)
	p.wait("a dash for what is not measured",
		`[...document.querySelectorAll("#story .chapter")].at(-1).querySelector("tbody td").textContent === "–"`)
	p.wait("times to the first token", `tile("First token") > 0`)
	p.wait("axes", `document.querySelector(".plot .left").innerText.replace(/\s+/g, " ") === "100% 50% 0%" && /now/.test(document.querySelector(".plot .bottom").innerText)`)
	f.page.Present(shownStory(57))
	p.wait("how far it is", `document.querySelector("#story").innerText.includes("57%")`)

	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1280, 390, 1920} {
			t.Run(fmt.Sprint(scheme, width), func(t *testing.T) {
				p.look(width, 900, scheme)
				p.eval("scrollTo(0, 0)", nil)
				var wrong, low []string
				p.eval(layout, &wrong)
				p.eval(contrast, &low)
				if len(wrong)+len(low) > 0 {
					t.Errorf("%s\ncontrast: %q", strings.Join(wrong, "\n"), low)
				}
				p.shoot(fmt.Sprintf("story-%d-%s", width, scheme))
				if width == 1280 {
					p.shootFor("page-"+scheme, width, 1180)
				}
			})
		}
	}
	// Names and words as long as real ones may be.
	p.look(1280, 900, "light")
	p.eval(`document.querySelector("#pause").click()`, nil)
	p.wait("a pause", `document.querySelector("#live").textContent === "Paused"`)
	p.eval(`(() => {
		const long = "vllm-decode-7c9f6b5d4-x2x8k.inference.svc.cluster.local:8000";
		for (const th of document.querySelectorAll("#targets tbody th, #decisions tbody th, #sizes tbody th, #streams tbody th")) th.textContent = long;
		for (const r of document.querySelectorAll("#decisions tbody tr")) {
			r.children[2].querySelector(".badge").textContent = "untrusted least load";
			r.children[4].textContent = "128 in flight, 4096 queued";
			r.children[6].querySelector(".badge").textContent = "failed 503";
		}
		const wait = document.createElement("span");
		wait.className = "sub";
		wait.textContent = "first token after 123.4 s";
		document.querySelector("#decisions tbody tr").children[6].replaceChildren(wait);
	})()`, nil)
	for _, width := range []int{1280, 390} {
		p.look(width, 900, "light")
		var wrong []string
		p.eval(layout, &wrong)
		p.shoot(fmt.Sprintf("long-%d", width))
		if len(wrong) > 0 {
			t.Errorf("with long names at %d px: %s", width, strings.Join(wrong, "\n"))
		}
	}
	p.eval(`document.querySelector("#pause").click()`, nil)
	if w := p.complaints(); len(w) > 0 {
		t.Errorf("the page complains: %q", w)
	}
	f.page.Present(debugui.Story{})
	p.wait("that the story is over", `document.querySelector("#story-s").hidden`)
}
