// Asks for news once a second, as long as the page can be seen, and draws it.
import { $, el, set, text, name, percent } from "./dom.js";
import * as draw from "./tables.js";

const every = 1000;
let timer = 0, paused = false, asking = false, again = false;
let news = null, chosen = "";
let typed = ""; // the model that was filled in
let heard = { event: -1, spills: 0, at: 0, route: "" };

function query(path, params) {
  return fetch(path + "?" + new URLSearchParams(params), { cache: "no-store", credentials: "same-origin" });
}

async function ask() {
  clearTimeout(timer);
  if (asking) return void (again = true);
  asking = true;
  try {
    const r = await query("state", { route: chosen, show: $("show").value, find: $("find").value });
    if (!r.ok) throw new Error("status " + r.status);
    news = await r.json();
    render(news);
    status(paused ? "" : "on", paused ? "Paused" : "Live");
  } catch {
    status("off", "No answer, trying again");
  }
  asking = false;
  if (again) {
    again = false;
    ask();
  } else if (!paused && !document.hidden) timer = setTimeout(ask, every);
}

function status(cls, s) {
  $("live").className = "live " + cls;
  text($("live"), s);
}

function render(s) {
  document.title = s.route ? s.title + ": " + s.route : s.title;
  text($("title"), s.title);
  set($("strategy"), { hidden: !s.strategy });
  text($("strategy"), s.strategy);
  text($("privacy"), s.prompts ? "Prompts are shown on this page" : "Prompts are not shown");
  $("privacy").className = "tag " + (s.prompts ? "loud" : "quiet");
  routes(s);
  draw.trim(s);
  draw.drawStory(s);
  draw.drawOverview(s);
  draw.drawTargets(s, $("find").value !== "");
  draw.drawSizes(s);
  draw.drawDecisions(s, why);
  draw.drawEvents(s);
  draw.drawSplits(s);
  draw.drawShared(s);
  draw.drawMemory(s);
  draw.drawStreams(s);
  if (typed !== $("try-model").value) typed = null; // somebody's own
  if (typed !== null && document.activeElement !== $("try-model")) $("try-model").value = typed = s.model;
  announce(s);
}

function routes(s) {
  const select = $("route");
  $("route-l").hidden = s.routes.length < 2;
  const same = select.options.length === s.routes.length && s.routes.every((r, i) => select.options[i].value === r);
  if (!same) select.replaceChildren(...s.routes.map((r) => el("option", { value: r }, r || "(no name)")));
  if (document.activeElement !== select) select.value = s.route;
}

// announce tells a screen reader what is new, not more than once in five seconds.
function announce(s) {
  const last = s.events.length ? s.events[0].seq : 0;
  if (heard.event < 0 || heard.route !== s.route) {
    heard = { event: last, spills: s.totals.spills, at: 0, route: s.route };
    return;
  }
  if (Date.now() - heard.at < 5000) return;
  const said = s.events.filter((e) => e.seq > heard.event && e.level !== "info").slice(0, 3).reverse().map((e) => name(e.target) + " " + e.text);
  const spills = s.totals.spills - heard.spills;
  if (spills > 0) said.push(spills === 1 ? "1 spill" : spills + " spills");
  if (!said.length) return;
  heard = { event: last, spills: s.totals.spills, at: Date.now(), route: s.route };
  $("announce").replaceChildren(el("p", null, said.join(". ") + "."));
}

// why shows or hides what a decision was made from.
async function why(d, button) {
  const row = button.closest("tr");
  if (row.nextElementSibling?.classList.contains("more")) {
    row.nextElementSibling.remove();
    button.setAttribute("aria-expanded", "false");
    button.removeAttribute("aria-controls");
    return;
  }
  const table = el("table");
  const cell = el("td", { colspan: row.children.length }, table);
  const more = el("tr", { class: "more", id: "why-" + d.seq }, cell);
  row.after(more);
  set(button, { "aria-expanded": "true", "aria-controls": more.id });
  try {
    const r = await query("decision", { route: news.route, seq: d.seq });
    if (!r.ok) throw new Error(await r.text());
    const out = await r.json();
    if (out.candidates.length) {
      draw.drawCandidates(table, out);
      table.prepend(el("caption", null, out.candidates.length < out.of ? `The best ${out.candidates.length} of ${out.of} candidates, as they were` : "The candidates, as they were"));
    } else table.replaceWith(el("span", { class: "muted" }, "Its candidates were not kept."));
    if (out.prompt) cell.append(el("pre", { tabindex: "0", "aria-label": "Prompt" }, out.prompt));
  } catch {
    cell.replaceChildren(el("span", { class: "muted" }, "This decision is not kept any more."));
  }
}

async function rank(event) {
  event.preventDefault();
  const out = $("try-status");
  text(out, "Ranking…");
  try {
    const r = await fetch("explain", {
      method: "POST", headers: { "Content-Type": "application/json" }, cache: "no-store", credentials: "same-origin",
      body: JSON.stringify({ route: news ? news.route : "", path: $("try-path").value, model: $("try-model").value, body: $("try-body").value }),
    });
    if (!r.ok) throw new Error((await r.text()).trim());
    const got = await r.json();
    draw.drawCandidates($("ranking"), got);
    $("try-region").hidden = !got.candidates.length;
    const best = got.candidates[0];
    const share = best && best.length ? percent(Math.round((best.cached / best.length) * 1000)) : "nothing";
    const first = !best ? "There are no targets." : best.chosen ? `${name(best.target)} would take it, with ${share} of ${got.length} ${got.unit} cached.` : "No target is ready.";
    text(out, (got.note ? got.note + ". " : "") + first + (got.of > got.candidates.length ? ` The best ${got.candidates.length} of ${got.of} are shown.` : ""));
  } catch (e) {
    $("try-region").hidden = true;
    text(out, "Not ranked: " + (e.message || "no answer"));
  }
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  if (paused) {
    clearTimeout(timer);
    status("", "Paused");
  } else ask();
});
$("route").addEventListener("change", () => {
  chosen = $("route").value;
  ask();
});
$("show").addEventListener("change", () => ask());
$("find").addEventListener("input", () => ask());
$("try").addEventListener("submit", rank);
$("try-path").addEventListener("change", () => {
  $("try-model-l").hidden = $("try-path").value !== "";
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (!paused) ask();
});
draw.drawReasons();
ask();
