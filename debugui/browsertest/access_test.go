//go:build unix

package browsertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/router/debugui"
)

// axNode is a node of the tree that a screen reader is given.
type axNode struct {
	NodeID     string
	ParentID   string
	Ignored    bool
	Role       struct{ Value string }
	Name       struct{ Value string }
	Properties []struct {
		Name  string
		Value struct{ Value any }
	}
}

func (n axNode) property(name string) any {
	for _, p := range n.Properties {
		if p.Name == name {
			return p.Value.Value
		}
	}
	return nil
}

func (p *tab) tree() []axNode {
	p.t.Helper()
	var r struct{ Nodes []axNode }
	p.do("Accessibility.getFullAXTree", nil, &r)
	return slices.DeleteFunc(r.Nodes, func(n axNode) bool { return n.Ignored })
}

// TestAccess looks at the page as a screen reader and a keyboard do.
func TestAccess(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	f := startFleet(t, 3, debugui.Config{ShowPrompts: true})
	f.subscribed()
	p := b.open(t, f.url)
	p.look(1440, 900, "light")
	p.wait("that it is live", `document.querySelector("#live")?.textContent === "Live"`)
	f.chats(4, 2, "clerk")
	p.wait("decisions with candidates", `document.querySelectorAll("#decisions .why").length > 3`)

	t.Run("tree", func(t *testing.T) {
		headers := make(map[string]bool)
		roles := make(map[string]int)
		for _, n := range p.tree() {
			roles[n.Role.Value]++
			switch n.Role.Value {
			case "button", "textbox", "searchbox", "combobox", "link", "region", "heading", "columnheader", "rowheader", "list":
				if n.Name.Value == "" && n.Role.Value != "list" {
					t.Errorf("a %s without a name", n.Role.Value)
				}
			case "image", "img":
				t.Errorf("an image that is read: %q", n.Name.Value)
			}
			if n.Role.Value == "columnheader" {
				headers[n.Name.Value] = true
			}
			if n.Role.Value == "button" && strings.HasPrefix(n.Name.Value, "Candidates of the decision") &&
				n.property("expanded") != false {
				t.Errorf("%q does not say that it is closed: %v", n.Name.Value, n.property("expanded"))
			}
		}
		for role, least := range map[string]int{
			"main": 1, "banner": 1, "heading": 7, "table": 4, "columnheader": 20, "rowheader": 9, "status": 2, "region": 10,
			"button": 6, "searchbox": 1, "combobox": 2,
		} {
			if roles[role] < least {
				t.Errorf("%d of role %s, want %d or more", roles[role], role, least)
			}
		}
		for _, h := range []string{"Target", "State", "In flight", "Queued", "Cached share", "Reason", "Outcome", "Why",
			"Gaps"} {
			if !headers[h] {
				t.Errorf("no column header %q in %v", h, headers)
			}
		}
		var live string
		p.eval(`document.querySelector("#announce").getAttribute("aria-live")`, &live)
		if live != "polite" {
			t.Errorf("news are told %q", live)
		}
	})

	t.Run("keyboard", func(t *testing.T) { keyboard(t, f, p) })

	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1440, 360} {
			t.Run(fmt.Sprint(scheme, width), func(t *testing.T) {
				p.look(width, 900, scheme)
				var low []string
				p.eval(contrast, &low)
				if len(low) > 0 {
					t.Errorf("contrast below 4.5: %q", low)
				}
				var wide, moving int
				p.eval("document.documentElement.scrollWidth", &wide)
				p.eval("document.getAnimations().length", &moving)
				if wide > width || moving > 0 {
					t.Errorf("%d px wide of %d, %d animations although less motion is asked for", wide, width, moving)
				}
			})
		}
	}
	shoot(p, "tried")

	t.Run("origin", func(t *testing.T) {
		var foreign []string
		p.eval(`performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !n.startsWith(location.origin + "/debug/router/"))`, &foreign)
		if len(foreign) > 0 {
			t.Errorf("loaded from elsewhere: %q", foreign)
		}
		if w := p.complaints(); len(w) > 0 {
			t.Errorf("the page complains: %q", w)
		}
		var got []bool
		p.eval(`(async () => {
			const out = [];
			try { const s = document.createElement("script"); s.textContent = "window.injected = 1"; document.body.append(s); } catch {}
			out.push("injected" in window);
			const style = document.createElement("style"); style.textContent = "h1 { color: rgb(1, 2, 3) }"; document.head.append(style);
			out.push(getComputedStyle(document.querySelector("h1")).color === "rgb(1, 2, 3)");
			out.push(await fetch(location.origin.replace("127.0.0.1", "localhost") + "/debug/router/state").then(() => true, () => false));
			return out;
		})()`, &got)
		if slices.Contains(got, true) {
			t.Errorf("the policy let through: script, style, another origin: %v", got)
		}
	})
}

// keyboard goes through the page with Tab, opens a decision and tries a prompt.
func keyboard(t *testing.T, f *fleet, p *tab) {
	const where = `(() => { const e = document.activeElement; return e.id || e.getAttribute("aria-labelledby") || e.className || e.tagName; })()`
	var order []string
	for range 40 {
		p.press("Tab", 9, false)
		var at string
		p.eval(where, &at)
		if len(order) == 0 || order[len(order)-1] != at {
			order = append(order, at)
		}
		if at == "why" {
			break
		}
	}
	want := []string{"skip", "pause", "find", "targets-h", "show", "decisions-h", "why"}
	if !slices.Equal(order, want) {
		t.Fatalf("Tab goes to %q, want %q", order, want)
	}
	var outline string
	p.eval(`getComputedStyle(document.activeElement).outlineStyle`, &outline)
	if outline == "none" {
		t.Error("the focus cannot be seen")
	}
	p.press("Enter", 13, false)
	p.wait("the candidates",
		`document.activeElement.getAttribute("aria-expanded") === "true" && document.querySelectorAll("#decisions tr.more tbody tr").length === 3`)
	p.wait("one that was taken", `document.querySelectorAll("#decisions tr.more tr.picked").length === 1`)
	p.wait("the prompt, which is switched on",
		`document.querySelector("#decisions tr.more pre").textContent.includes("[user]")`)
	p.shoot("why")
	p.wait("that prompts are shown", `document.querySelector("#privacy").textContent === "Prompts are shown on this page"`)
	// New decisions do not take the focus or the row away.
	var before, after int
	p.eval(`tile("Picks a second") >= 0 ? document.querySelectorAll("#decisions > tbody > tr:not(.more)").length : 0`,
		&before)
	f.chats(2, 1, "later")
	p.wait("that they are held", `!document.querySelector("#held").hidden`)
	p.eval(`document.querySelectorAll("#decisions > tbody > tr:not(.more)").length`, &after)
	p.wait("the same focus", `document.activeElement.className === "why" && document.querySelector("#decisions tr.more")`)
	if after != before {
		t.Errorf("%d rows, then %d", before, after)
	}
	p.press("Enter", 13, false)
	p.wait("that it is closed",
		`document.activeElement.getAttribute("aria-expanded") === "false" && !document.querySelector("#decisions tr.more")`)

	p.eval(`document.querySelector("#try-body").focus()`, nil)
	p.do("Input.insertText", map[string]any{"text": "Where does the first train go?"}, nil)
	p.press("Tab", 9, false)
	p.press("Enter", 13, false)
	p.wait("a ranking", `document.querySelectorAll("#ranking tbody tr").length === 3 && document.querySelector("#try-status").textContent.includes("would take it")`)

	p.eval(`document.querySelector("#pause").focus()`, nil)
	p.press("Enter", 13, false)
	p.wait("a pause", `document.querySelector("#live").textContent === "Paused" && document.querySelector("#pause").getAttribute("aria-pressed") === "true"`)
	p.press("Enter", 13, false)
	p.wait("that it is live again", `document.querySelector("#live").textContent === "Live"`)

	p.eval(`document.querySelector(".skip").focus()`, nil)
	p.press("Enter", 13, false)
	p.wait("the focus at the targets", `document.activeElement.id === "targets-h"`)
}

// contrast lists the texts with a contrast to their background below 4.5, by WCAG
// 2's formula.
const contrast = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	canvas.canvas.width = canvas.canvas.height = 1;
	const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
	const over = (a, b) => a.map((v, i) => (i < 3 ? v * a[3] + b[i] * (1 - a[3]) : 1));
	const behind = (e) => { const list = []; for (; e; e = e.parentElement) list.push(rgba(getComputedStyle(e).backgroundColor)); return list.reduceRight((b, a) => over(a, b), [255, 255, 255, 1]); };
	const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const low = new Set(), texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let seen = 0;
	for (let n; (n = texts.nextNode()); ) {
		const e = n.parentElement;
		if (!n.textContent.trim() || !e.checkVisibility() || e.closest(".vh, script, noscript")) continue;
		seen++;
		const back = behind(e), front = over(rgba(getComputedStyle(e).color), back);
		const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) low.add(n.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
	}
	if (seen < 50) low.add("only " + seen + " texts were seen");
	return [...low];
})()`
