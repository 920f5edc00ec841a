// What makes elements. Text is only ever set as text.

export const $ = (id) => document.getElementById(id);

// el makes an element: el("td", {class: "n"}, "text", child).
export function el(name, attrs, ...children) {
  const e = document.createElement(name);
  set(e, attrs);
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

export function set(e, attrs) {
  for (const [k, v] of Object.entries(attrs || {})) {
    if (k === "on") for (const [type, f] of Object.entries(v)) e.addEventListener(type, f);
    else if (k === "v") e.style.setProperty("--v", v);
    else if (v === false || v === null || v === undefined) e.removeAttribute(k);
    else e.setAttribute(k, v === true ? "" : v);
  }
}

const NS = "http://www.w3.org/2000/svg";

export function svg(name, attrs, ...children) {
  const e = document.createElementNS(NS, name);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// text sets the text where it is another, so that a selection and a screen reader
// are left alone.
export function text(e, s) {
  if (e.textContent !== s) e.textContent = s;
}

// keyed makes parent's children those of items, in order, and leaves those alone
// that stay: make(item) makes one, update(element, item) is called for all.
export function keyed(parent, items, key, make, update) {
  const old = new Map();
  for (const c of parent.children) if (c.dataset.key !== undefined) old.set(c.dataset.key, c);
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = String(key(item));
    let e = old.get(k);
    if (e) old.delete(k);
    else {
      e = make(item);
      e.dataset.key = k;
    }
    update(e, item);
    if (e === at) at = skipMore(at.nextElementSibling);
    else {
      const more = e.nextElementSibling?.classList.contains("more") ? e.nextElementSibling : null;
      parent.insertBefore(e, at);
      if (more) e.after(more);
    }
  }
  for (const e of old.values()) {
    if (e.nextElementSibling?.classList.contains("more")) e.nextElementSibling.remove();
    e.remove();
  }
}

// skipMore goes past a row that belongs to the one before it.
function skipMore(e) {
  return e?.classList.contains("more") ? e.nextElementSibling : e;
}

// cells replaces a row's cells whose looks changed. Each is [class, key, make].
export function cells(row, list) {
  list.forEach(([tag, cls, key, make], i) => {
    const k = String(key);
    const old = row.children[i];
    if (old && old.dataset.k === k) return;
    const c = el(tag, { class: cls || null, scope: tag === "th" ? "row" : null });
    const made = make();
    c.append(...(Array.isArray(made) ? made : [made]));
    c.dataset.k = k;
    if (old) old.replaceWith(c);
    else row.append(c);
  });
  while (row.children.length > list.length) row.lastElementChild.remove();
}

// head sets a table's column headers where they changed. Each is [text, class].
export function head(table, columns) {
  const k = columns.map((c) => c.join("|")).join("\n");
  if (table.dataset.head === k) return table.tBodies[0];
  table.dataset.head = k;
  table.replaceChildren(
    el("thead", null, el("tr", null, ...columns.map(([t, cls]) => el("th", { scope: "col", class: cls || null }, t)))),
    el("tbody"),
  );
  return table.tBodies[0];
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
export const num = (n) => (Math.abs(n) < 1000 ? String(Math.round(n * 10) / 10) : compact.format(n));
export const percent = (permille) => (permille < 0 ? "–" : Math.round(permille / 10) + "%");
export const words = (s) => s.replaceAll("_", " ");
// name leaves out what all targets of a page begin with.
export const name = (id) => id.replace(/^https?:\/\//, "");

export function clockTime(ms) {
  const d = new Date(ms);
  return [d.getHours(), d.getMinutes(), d.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

export function duration(ms) {
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
  return Math.round(ms / 60000) + " min";
}

export function meter(permille) {
  return el("span", { class: "meter" }, el("b", null, percent(permille)), el("i", { v: Math.max(permille, 0) / 10, "aria-hidden": "true" }));
}

const signs = { good: "✓", warn: "!", bad: "✕", calm: "–", info: "·" };
export function badge(s, kind) {
  return el("span", { class: "badge " + kind, "data-sign": signs[kind] }, words(s));
}
export const sign = (level) => signs[level] || "·";

// runs gives the paths of a line over values in thousandths, broken at -1, and of
// the area below it, in a box of w by h.
export function runs(values, w, h) {
  let line = "", area = "", first = -1;
  const x = (i) => (((i + 0.5) / values.length) * w).toFixed(1);
  const y = (v) => (h - 1.5 - (v / 1000) * (h - 3)).toFixed(1);
  const end = (i) => {
    if (first < 0) return;
    if (i === first) line += `h0.01`;
    area += `L${x(i)} ${h}L${x(first)} ${h}Z`;
    first = -1;
  };
  values.forEach((v, i) => {
    if (v < 0) return end(i - 1);
    if (first < 0) {
      first = i;
      line += `M${x(i)} ${y(v)}`;
      area += `M${x(i)} ${y(v)}`;
    } else {
      line += `L${x(i)} ${y(v)}`;
      area += `L${x(i)} ${y(v)}`;
    }
  });
  end(values.length - 1);
  return { line, area };
}
