// The parts of the page, each drawn from one piece of news.
import { reasons } from "./reasons.js";
import { $, el, set, svg, text, keyed, cells, head, num, percent, words, name, clockTime, duration, meter, badge, sign, runs } from "./dom.js";

const stateKind = { ready: "good", cooling: "warn", draining: "calm", full: "calm", asleep: "calm", unhealthy: "bad", tripped: "bad" };
const streamKind = { live: "good", partial: "good", resyncing: "warn", down: "bad" };

const reasonKind = (r) =>
  r === "warm" ? "good" : ["spill", "hash_overflow", "overloaded"].includes(r) ? "warn" : r.startsWith("no_target") ? "bad" : "calm";

export function drawReasons() {
  $("reasons").append(...Object.entries(reasons).map(([r, t]) => el("div", null, el("dt", null, words(r)), el("dd", null, t))));
}

const columnKind = { waiting: ["waits", "calm"], running: ["runs", "warn"], over: ["done", "good"] };

// drawStory tells what the page is shown for: a card for each chapter.
export function drawStory(s) {
  const story = s.story;
  $("story-s").hidden = !story;
  if (!story) return;
  text($("story-about"), story.about);
  keyed($("story"), story.chapters.map((c, i) => ({ ...c, key: i })), (c) => c.key, () => el("article", { class: "chapter" }), (card, c) => {
    const seen = JSON.stringify(c);
    if (card.dataset.seen === seen) return;
    card.dataset.seen = seen;
    const heads = c.columns.map((col) => {
      const [word, kind] = columnKind[col.state] || ["", "calm"];
      const done = col.state === "running" && col.of ? Math.round((col.done / col.of) * 100) + "%" : word;
      return el("th", { scope: "col", class: "n" }, el("span", { class: "label" }, col.name), " ", col.state === "running" ? el("span", { class: "badge run", "data-sign": "▸" }, done) : badge(done, kind));
    });
    const better = c.rows.some((r) => r.better);
    const rows = c.rows.map((r) => el("tr", null, el("th", { scope: "row" }, r.label),
      ...c.columns.map((_, i) => el("td", { class: "n" }, r.values[i] || "–")),
      better ? el("td", { class: "better" + (r.better.endsWith("better") ? " good" : r.better.endsWith("worse") ? " bad" : "") }, r.better) : null));
    const table = el("table", null, el("thead", null, el("tr", null, el("td"), ...heads, better ? el("td") : null)), el("tbody", null, ...rows));
    card.replaceChildren(el("h3", null, c.title), el("p", { class: "muted note" }, c.about),
      el("div", { class: "scroll", role: "region", "aria-label": c.title, tabindex: "0" }, table),
      c.verdict ? el("p", { class: "verdict" }, c.verdict) : el("p", { class: "muted note" }, c.columns.some((x) => x.state === "running") ? "It runs." : "It comes later."));
  });
}

// trim leaves out what was before the first pick, but for half a minute, so that
// something is to be seen early on.
export function trim(s) {
  let from = s.picks.findIndex((n) => n > 0);
  if (from < 0) from = s.picks.length;
  from = Math.max(0, Math.min(from - 1, s.picks.length - Math.ceil(30000 / s.spanMs)));
  s.picks = s.picks.slice(from);
  s.series = s.series.slice(from);
  for (const t of s.targets) t.series = t.series.slice(from);
}

export function drawOverview(s) {
  const t = s.totals;
  const ready = s.states.ready || 0;
  const all = Object.values(s.states).reduce((a, b) => a + b, 0);
  const judged = t.judged ? Math.round((t.reported / t.judged) * 100) + "% by the engines" : s.books ? "as believed" : "the strategy keeps no books";
  const tiles = [
    ["Cached share", percent(s.share), judged],
    ["First token", s.first.all < 0 ? "–" : duration(s.first.all), s.first.warm < 0 && s.first.cold < 0 ? "the median" :
      [s.first.warm >= 0 ? "warm " + duration(s.first.warm) : "", s.first.cold >= 0 ? "cold " + duration(s.first.cold) : ""].filter(Boolean).join(", ")],
    ["Picks a second", num(s.rate), num(t.picks) + " in all"],
    ["Targets ready", s.hasView ? ready + " of " + all : "–", all - ready ? all - ready + " not ready" : "", s.hasView && ready < all],
    ["In flight", num(t.inFlight), s.queued ? num(s.queued) + " more queued" : ""],
    ["Waiting here", s.waiting >= 0 ? num(s.waiting) : "–", s.waiting >= 0 ? num(s.waitingKB) + " KiB, " + num(s.shed) + " shed" : "no line", s.shed > 0],
    ["Spills", num(t.spills), t.picks ? ((t.spills / t.picks) * 100).toFixed(1) + "% of picks" : ""],
    ["Failed", num(t.failed), num(t.retries) + " retried", t.failed > 0],
    ["Canceled", num(t.canceled), ""],
    ["No target", num(t.noTarget), "", t.noTarget > 0],
  ];
  const dl = $("tiles");
  if (!dl.children.length) dl.append(...tiles.map(([label]) => el("div", null, el("dt", null, label), el("dd", null, el("span"), el("small")))));
  tiles.forEach(([, v, sub, alarm], i) => {
    const dd = dl.children[i].lastElementChild;
    text(dd.firstElementChild, v);
    text(dd.lastElementChild, sub);
    set(dd, { class: alarm ? "alarm" : null });
  });
  drawChart(s);
}

function drawChart(s) {
  const n = s.series.length;
  const [w, h] = [n * 4, 100];
  const most = Math.max(1, ...s.picks);
  const bars = s.picks
    .map((p, i) => (p ? svg("rect", { class: "col", x: i * 4 + 0.5, width: 3, y: (h - (p / most) * h).toFixed(1), height: ((p / most) * h).toFixed(1) }) : null))
    .filter(Boolean);
  const { line, area } = runs(s.series, w, h);
  const rules = [0.25, 0.5, 0.75].map((y) => svg("path", { class: "rule", d: `M0 ${h * y}H${w}` }));
  $("chart").replaceChildren(
    svg("svg", { viewBox: `0 0 ${w} ${h}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      ...rules, ...bars, svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line })),
  );
  const seconds = Math.round((n * s.spanMs) / 1000);
  text($("chart-span"), s.books ? "" : "no cached share: the strategy keeps no books of it");
  text($("chart-from"), seconds < 100 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`);
  text($("chart-most"), `${num(most)} ${most === 1 ? "pick" : "picks"} in ${s.spanMs / 1000} s`);
  const known = s.series.filter((v) => v >= 0);
  text($("chart-text"), known.length ? `Between ${percent(Math.min(...known))} and ${percent(Math.max(...known))} cached; lately ${percent(known.at(-1))}.` : "No picks yet.");
}

function spark(series) {
  const known = series.filter((v) => v >= 0);
  if (!known.length) return el("span", { class: "sub" }, "–");
  const { line, area } = runs(series, 180, 26);
  return [
    svg("svg", { class: "spark", viewBox: "0 0 180 26", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line })),
    el("span", { class: "vh" }, `between ${percent(Math.min(...known))} and ${percent(Math.max(...known))}, lately ${percent(known.at(-1))}`),
  ];
}

export function drawTargets(s, finding) {
  const columns = [["Target"], ["State"], ["In flight", "n"], ["Queued", "n mid"], ["Waits for prefill", "n wide"], ["Picks", "n mid"], ["Cached share"], ["over time, 0 to 100%", "wide"]];
  if (s.hasWarmed) columns.push(["Recorded", "n wide"]);
  if (s.hasIndex) columns.push(["Blocks held", "n wide"]);
  const slotted = s.targets.some((t) => t.slots || t.lacking.length);
  if (slotted) columns.push(["LoRA adapters", "wide"]);
  const body = head($("targets"), columns);
  keyed(body, s.targets, (t) => t.id, () => el("tr"), (row, t) => {
    const queued = t.known ? num(t.queued) : "–";
    const list = [
      ["th", "", t.id + t.weight, () => (t.weight === 1 ? name(t.id) : [name(t.id) + " ", el("span", { class: "sub" }, "weight " + num(t.weight))])],
      ["td", "", t.state + Math.ceil(t.readyMs / 1000) + "/" + t.failures + t.role, () => {
        const more = (t.readyMs ? " " + duration(Math.ceil(t.readyMs / 1000) * 1000) : "") + (t.role ? " " + t.role : "");
        return more ? [badge(t.state, stateKind[t.state] || "calm"), el("span", { class: "sub" }, more)] : badge(t.state, stateKind[t.state] || "calm");
      }],
      ["td", "n", (t.known ? t.inFlight : "–") + "/" + t.limit, () => {
        const n = t.known ? num(t.inFlight) : "–";
        return t.limit ? [n + " ", el("span", { class: "sub" }, "limit " + num(t.limit))] : n;
      }],
      ["td", "n mid", queued, () => queued],
      ["td", "n wide", t.prefill, () => (t.prefill ? num(t.prefill) + " tokens" : "–")],
      ["td", "n mid", t.picks, () => num(t.picks)],
      ["td", "", t.share, () => meter(t.share)],
      ["td", "wide", t.series.join(), () => spark(t.series)],
    ];
    if (s.hasWarmed) list.push(["td", "n wide", t.warmed, () => num(t.warmed) + (t.warmed === 1 ? " prompt" : " prompts")]);
    if (s.hasIndex) list.push(["td", "n wide", t.blocks + "/" + t.trusted, () => (t.trusted ? num(t.blocks) : [num(t.blocks) + " ", el("span", { class: "sub" }, "not trusted")])]);
    if (slotted) {
      list.push(["td", "wide", [t.slots, t.loads, ...t.adapters, "/", ...t.lacking].join(" "), () => [
        t.slots ? `${num(t.adapters.length)} of ${num(t.slots)} ` : "– ",
        el("span", { class: "sub" }, t.adapters.join(", ") + (t.loads ? ` (${num(t.loads)} loads)` : "") + (t.lacking.length ? ` lacks ${t.lacking.join(", ")}` : "")),
      ]]);
    }
    cells(row, list);
  });
  const all = Object.values(s.states).reduce((a, b) => a + b, 0);
  text($("targets-n"), s.targets.length < s.matching ? `${s.targets.length} of ${s.matching}, those not ready and the busiest first` : finding ? `${s.matching} of ${all}` : String(all));
  set($("targets"), { hidden: !s.targets.length });
  set($("targets-empty"), { hidden: s.targets.length > 0 });
  text($("targets-empty"), !s.hasView ? "This route's fleet is not watched." : finding ? "No target has this in its name." : "The fleet has no targets.");
}

export function drawSizes(s) {
  const seen = s.sizes.map((_, i) => s.targets.some((t) => t.bySize[i]?.[0]));
  const shownSizes = s.sizes.map((label, i) => [label, i]).filter(([, i]) => seen[i]);
  const body = head($("sizes"), [["Target"], ...(shownSizes.length ? shownSizes : s.sizes.map((l, i) => [l, i])).map(([label]) => [label, "n"])]);
  const list = shownSizes.length ? shownSizes : s.sizes.map((l, i) => [l, i]);
  keyed(body, s.targets, (t) => t.id, () => el("tr"), (row, t) => {
    cells(row, [
      ["th", "", t.id, () => name(t.id)],
      ...list.map(([, i]) => {
        const [picks, share] = t.bySize[i] || [0, -1];
        return ["td", "heat", picks + "/" + share, () => (picks ? [percent(share), el("span", { class: "sub" }, num(picks))] : "–")];
      }),
    ]);
    list.forEach(([, i], j) => row.children[j + 1].style.setProperty("--v", Math.max(t.bySize[i]?.[1] ?? 0, 0) / 10));
  });
}

function outcome(d) {
  if (d.stage === "") return el("span", { class: "sub" }, d.firstMs ? "first token after " + duration(d.firstMs) : "in flight");
  if (d.stage === "untold") return ["–", el("span", { class: "vh" }, "not followed")];
  if (d.stage === "no_target") return badge("no target", "bad");
  const kind = d.stage === "finished" ? "good" : d.stage === "failed" ? "bad" : "calm";
  return [badge(d.stage + (d.status && d.stage === "failed" ? " " + d.status : ""), kind), el("span", { class: "sub" }, " " + duration(d.wholeMs))];
}

export function drawDecisions(s, onWhy) {
  const table = $("decisions");
  const body = head(table, [["Time", "mid"], ["Target"], ["Reason"], ["Cached"], ["Load there", "wide"], ["Pick took", "n wide"], ["Outcome"], ["Why"]]);
  // Rows do not move away under a pointer or a focus.
  const held = s.decisions.length > 0 && body.children.length > 0 && table.matches(":hover, :focus-within");
  $("held").hidden = !held;
  let list = s.decisions;
  if (held) {
    const there = new Set([...body.children].map((c) => c.dataset.key));
    list = list.filter((d) => there.has(String(d.seq)));
  }
  const update = (row, d) => {
    const share = d.length && d.cached >= 0 ? Math.round((Math.min(d.cached, d.length) / d.length) * 1000) : -1;
    cells(row, [
      ["td", "mid", d.at, () => clockTime(d.at)],
      ["th", "", d.target + d.attempt, () => (d.attempt > 1 ? [name(d.target) + " ", el("span", { class: "sub" }, "try " + d.attempt)] : name(d.target) || "none")],
      ["td", "", d.reason, () => badge(d.reason, reasonKind(d.reason))],
      ["td", "", share + d.unit + d.length, () => [meter(share), el("span", { class: "sub" }, " of " + num(d.length) + " " + d.unit)]],
      ["td", "wide", d.inFlight + "+" + d.queued, () => (d.target ? d.inFlight + " in flight" + (d.queued ? ", " + d.queued + " queued" : "") : "–")],
      ["td", "n wide", d.tookUs, () => (d.target ? (d.tookUs < 1000 ? num(d.tookUs) + " µs" : duration(d.tookUs / 1000)) : "–")],
      ["td", "", d.stage + d.status + d.firstMs, () => outcome(d)],
      ["td", "", d.of + "/" + s.prompts, () => (d.of || s.prompts ? whyButton(d, onWhy) : ["–", el("span", { class: "vh" }, "not kept")])],
    ]);
  };
  if (held) for (const d of list) update(body.querySelector(`[data-key="${d.seq}"]`), d);
  else keyed(body, list, (d) => d.seq, () => el("tr"), update);
  set(table, { hidden: !s.decisions.length && !held });
  set($("decisions-empty"), { hidden: s.decisions.length > 0 || held });
}

function whyButton(d, onWhy) {
  const b = el("button", { type: "button", class: "why", "aria-expanded": "false", "aria-label": `Candidates of the decision at ${clockTime(d.at)}, ${d.of}` }, d.of ? d.of + " ▾" : "▾");
  b.addEventListener("click", () => onWhy(d, b));
  return b;
}

export function drawCandidates(table, out) {
  const body = head(table, [["Target"], ["Verdict"], ["Cached"], ["Load"], ["Score", "n"]]);
  body.replaceChildren(...out.candidates.map((c) => {
    const share = c.length ? Math.round((Math.min(c.cached, c.length) / c.length) * 1000) : -1;
    const verdict = c.state === "ready" ? badge(c.reason, c.chosen ? "good" : reasonKind(c.reason) === "warn" ? "warn" : "calm") : badge(c.state, stateKind[c.state] || "calm");
    const load = c.known ? c.inFlight + " in flight" + (c.queued ? ", " + c.queued + " queued" : "") : "not known";
    return el("tr", { class: c.chosen ? "picked" : null },
      el("th", { scope: "row" }, name(c.target), c.chosen ? el("span", { class: "vh" }, ", taken") : null),
      el("td", null, verdict), el("td", null, meter(share)), el("td", null, load),
      el("td", { class: "n" }, c.score === null ? "–" : c.score.toFixed(2)));
  }));
}

export function drawEvents(s) {
  const ol = $("events");
  keyed(ol, s.events, (e) => e.seq, (e) =>
    el("li", { class: e.level }, el("time", { datetime: new Date(e.at).toISOString() }, clockTime(e.at)),
      el("span", { class: "sign", "aria-hidden": "true" }, sign(e.level)), el("span", null, el("b", null, name(e.target)), " " + e.text)), () => {});
  set($("events-empty"), { hidden: s.events.length > 0 });
}

export function drawStreams(s) {
  $("streams-s").hidden = !s.streams.length;
  text($("streams-n"), s.streams.length < s.streamsOf ? `${s.streams.length} of ${s.streamsOf}` : "");
  const body = head($("streams"), [["Target"], ["State"], ["Index", "slim"], ["Messages", "n slim"], ["Gaps", "n"], ["Replays", "n mid"], ["Not understood", "n wide"], ["Dropped", "n wide"]]);
  keyed(body, s.streams, (t) => t.target, () => el("tr"), (row, t) => cells(row, [
    ["th", "", t.target, () => name(t.target)],
    ["td", "", t.state, () => badge(t.state, streamKind[t.state] || "calm")],
    ["td", "slim", t.trusted, () => (t.trusted ? "trusted" : "not trusted")],
    ...[["n slim", t.messages], ["n", t.gaps], ["n mid", t.replays], ["n wide", t.malformed], ["n wide", t.overflows]].map(([c, n]) => ["td", c, n, () => num(n)]),
  ]));
}

export function drawSplits(s) {
  const v = s.splits;
  $("splits-s").hidden = !v;
  if (!v) return;
  text($("splits-n"), `${num(v.split)} prompts computed elsewhere, ${num(v.failed)} attempts failed, ${num(v.again)} once more; ${num(v.reused)} sent to a further target; ${num(v.stranded)} stranded, ${num(v.expired)} expired; ${num(v.silent)} decode targets silent`);
  const body = head($("splits"), [["Computed by the decode target, because"], ["Requests", "n"]]);
  const rows = Object.keys(v.skipped).sort();
  keyed(body, rows, (why) => why, () => el("tr"), (row, why) => cells(row, [
    ["th", "", why, () => why.replaceAll("_", " ")],
    ["td", "n", v.skipped[why], () => num(v.skipped[why])],
  ]));
}

const mib = (kb) => (kb / 1024).toFixed(kb < 10240 ? 1 : 0) + " MiB";

export function drawMemory(s) {
  const v = s.memory;
  $("memory-s").hidden = !v;
  if (!v) return;
  const accounts = v.accounts || [];
  const shed = accounts.reduce((n, a) => n + a.shed, 0);
  text($("memory-n"), `${mib(v.usedKB)} of ${mib(v.limitKB)} for requests, replies and events; ${mib(v.peakKB)} at most so far; ${num(shed)} shed`);
  const body = head($("memory"), [["Account"], ["In use", "n"], ["At most so far", "n mid"], ["Limit", "n"], ["Shed", "n"]]);
  keyed(body, accounts, (a) => a.name, () => el("tr"), (row, a) => cells(row, [
    ["th", "", a.name, () => name(a.name)],
    ...[["n", mib(a.usedKB)], ["n mid", mib(a.peakKB)], ["n", mib(a.limitKB)], ["n", num(a.shed)]].map(([c, t]) => ["td", c, t, () => t]),
  ]));
}

export function drawShared(s) {
  const v = s.shared;
  $("shared-s").hidden = !v;
  if (!v) return;
  const peers = v.peers || [];
  const state = !v.connected ? "the bus is not connected" : v.load ? "their load counts" : "their load does not count";
  text($("shared-n"), `${num(v.peersOf)} heard; ${state}; lag ${duration(v.lagUs / 1000)}, p99 ${duration(v.lagP99Us / 1000)}; ${num(v.marks)} fingerprints in ${num(v.memoryKB)} KiB; ${num(v.sentKB)} KiB sent; ${num(v.lost)} lost`);
  const body = head($("shared"), [["Gateway"], ["Load"], ["Heard", "n"], ["Lag", "n slim"], ["Up", "n mid"], ["Fingerprints", "n wide"]]);
  keyed(body, peers.map((p, i) => ({ ...p, key: i + p.name })), (p) => p.key, () => el("tr"), (row, p) => cells(row, [
    ["th", "", p.name, () => name(p.name)],
    ["td", "", `${p.counted} ${p.missing}`, () => badge(p.missing ? "frames are missing" : p.counted ? "counts" : "does not count", p.missing ? "warn" : p.counted ? "good" : "calm")],
    ["td", "n", p.heardMs, () => duration(p.heardMs) + " ago"],
    ["td", "n slim", p.lagUs, () => duration(p.lagUs / 1000)],
    ["td", "n mid", p.upS, () => duration(p.upS * 1000)],
    ["td", "n wide", p.marks, () => num(p.marks)],
  ]));
}
