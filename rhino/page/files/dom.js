// Elements, their update in place, and figures as text. All texts become text nodes: no name is ever taken for markup.
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "rect", "path", "circle", "line", "polyline", "text", "title"]);

export const $ = (id) => document.getElementById(id);
const present = (one) => one !== null && one !== undefined && one !== false && one !== "";

// An element with attributes (null and false: without) and children, which may be lists and texts.
export function el(tag, attributes, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {}))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  made.append(...children.flat(Infinity).filter(present));
  return made;
}

// Makes the children those of the element, and changes only what differs: focus and selection stay.
export function put(id, ...children) {
  const old = $(id), fresh = old.cloneNode(false);
  fresh.append(...children.flat(Infinity).filter(present));
  morph(old, fresh);
}

function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  const kept = (name) => name === "open"; // of details, as the person has left them
  for (const {name, value} of fresh.attributes)
    if (!kept(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const {name} of [...old.attributes]) if (!kept(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  const before = [...old.childNodes], after = [...fresh.childNodes];
  after.forEach((child, at) => (at < before.length ? morph(before[at], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

const known = (text) => (value) => (value === null || value === undefined ? "?" : text(value));
export const number = known((value) => value.toLocaleString("en", {maximumFractionDigits: 2}));
export const bytes = known((value) => {
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), 5);
  const figure = (value / 1000 ** power).toLocaleString("en", {maximumSignificantDigits: 3});
  return `${figure} ${["B", "kB", "MB", "GB", "TB", "PB"][power]}`;
});
export const seconds = known((value) => {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value / 60) % 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value / 3600) % 24)} h`;
});
export const count = (value, one, more = `${one}s`) => `${number(value)} ${value === 1 ? one : more}`;
export const words = (text) => text.replaceAll("_", " ");

export function clock(ms) {
  if (!ms) return "";
  const at = new Date(ms), today = at.toDateString() === new Date().toDateString();
  return (today ? "" : `${at.toLocaleDateString("sv")} `) + at.toLocaleTimeString("sv");
}

// A table in a region that scrolls by itself. `head`: texts, or [text, key] of columns that sort. Rows: lists of cells.
export function table(label, head, rows, sort = {}) {
  const title = ([text, key]) => {
    const order = key && sort.key === key && (sort.down ? "descending" : "ascending");
    const shown = key ? el("button", {type: "button", "data-sort": key}, text) : text;
    return el("th", {scope: "col", "aria-sort": order}, shown);
  };
  const cell = (one) => el("td", {class: one?.length > 40 && "long"}, one);
  const row = ([first, ...others]) => el("tr", null, el("th", {scope: "row"}, first), others.map(cell));
  return el("div", {class: "scroll", role: "region", "aria-label": label, tabindex: "0"}, el("table", null,
    el("thead", null, el("tr", null, head.map((one) => title([one].flat())))),
    el("tbody", null, rows.map(row))));
}

export const badge = (text, kind) => el("span", {class: `badge ${kind ?? ""}`}, text);
export const list = (texts) => texts.length > 0 && el("ul", null, texts.map((one) => el("li", null, one)));
