// Small charts as SVG. Colours are in the style sheet; each chart says its content in words, too.
import {el} from "./dom.js";

const LEVELS = 6;
const NAME_MAX = 16;

// A cell for each worker, by zone. `value(worker)` decides its colour: null is unknown. `text(worker)` tells it.
export function heatMap(workers, {value, text, width, chosen, label}) {
  const few = workers.length <= 48;
  const [wide, high] = few ? [136, 50] : workers.length <= 300 ? [30, 24] : [17, 17];
  const columns = Math.max(Math.floor(width / wide), 1);
  const most = Math.max(...workers.map(value), 0), zones = Map.groupBy(workers, (one) => one.zone);
  const made = [];
  let y = 0;

  function cell(one, x, top) {
    const shown = value(one), level = shown === null ? "unknown" : `l${most ? Math.round((shown / most) * LEVELS) : 0}`;
    const bad = one.state !== "live" || one.disk !== "ok";
    const state = one.state === "lost" ? "lost" : bad ? "bad" : one.draining ? "draining" : "";
    const told = `${one.worker_id}: ${one.state}, disk ${one.disk}${one.draining ? ", draining" : ""}, ${text(one)}`;
    const look = `cell ${level} ${state} ${one.worker_id === chosen ? "chosen" : ""}`;
    const place = {x: x + 1, y: top + 1, width: wide - 3, height: high - 3, rx: few ? 5 : 2};
    const names = {class: look, "data-worker": one.worker_id, "data-told": told};
    if (!few && state !== "lost") return el("rect", {...place, ...names}); // one element: there may be thousands
    const name = one.worker_id.length > NAME_MAX ? `${one.worker_id.slice(0, NAME_MAX - 1)}…` : one.worker_id;
    const [w, h] = [wide - 9, high - 9];
    return el("g", names, el("rect", place), few
      ? [el("text", {x: x + 9, y: top + 20}, name), el("text", {x: x + 9, y: top + 37, class: "small"}, text(one))]
      : el("path", {d: `M${x + 4} ${top + 4}l${w} ${h}m0 ${-h}l${-w} ${h}`}));
  }

  for (const zone of [...zones.keys()].sort()) {
    const here = zones.get(zone);
    if (zones.size > 1) {
      y += 22;
      made.push(el("text", {x: 1, y: y - 6, class: "zone"}, `${zone || "no zone"} (${here.length})`));
    }
    here.forEach((one, at) => made.push(cell(one, (at % columns) * wide, y + Math.floor(at / columns) * high)));
    y += Math.ceil(here.length / columns) * high;
  }
  return el("svg", {width: columns * wide, height: y, role: "img", "aria-label": label}, made);
}

// The colours of the map, from none to most.
export function scale() {
  const levels = Array.from({length: LEVELS + 1}, (_, level) =>
    el("g", {class: `cell l${level}`}, el("rect", {x: level * 18 + 1, y: 1, width: 17, height: 11})));
  return el("svg", {width: 18 * (LEVELS + 1) + 2, height: 13, role: "img", "aria-label": "none to most"}, levels);
}

// A line over time. `points`: [x, y]; `limit`: a level to compare with.
export function line(points, label, limit = 0) {
  const [wide, high] = [240, 44], most = Math.max(...points.map(([, y]) => y), limit, 1e-9);
  const from = points[0][0], span = Math.max(points.at(-1)[0] - from, 1);
  const level = (y) => (high - 2 - (y / most) * (high - 4)).toFixed(1);
  const at = ([x, y]) => `${(((x - from) / span) * wide).toFixed(1)},${level(y)}`;
  const look = {viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", class: "line", role: "img"};
  return el("svg", {...look, "aria-label": label},
    limit > 0 && el("line", {x1: 0, x2: wide, y1: level(limit), y2: level(limit), class: "limit"}),
    el("polyline", {points: points.map(at).join(" ")}));
}

// Decisions over time: the measured imbalance, and the one planned by a move. Null: nothing was measured.
export function timeline(decisions, width, label) {
  const shown = decisions.filter((one) => one.measured !== null).reverse();
  if (!shown.length) return null;
  const high = 120, most = Math.max(...shown.flatMap((one) => [one.measured, one.planned ?? 0]), 1.1);
  const from = shown[0].started_ms, span = Math.max(shown.at(-1).started_ms - from, 1);
  const x = (one) => 34 + ((one.started_ms - from) / span) * (width - 50);
  const y = (value) => high - 22 - ((value - 1) / (most - 1)) * (high - 36);
  const said = (at, ms) => el("text", {x: at, y: high - 4, class: "small"}, new Date(ms).toLocaleTimeString("sv"));
  const scale = (value) => [
    el("line", {x1: 30, x2: width - 10, y1: y(value), y2: y(value), class: "limit"}),
    el("text", {x: 0, y: y(value) + 4, class: "small"}, value.toFixed(1))];
  const change = (one) => one.planned !== null && [
    el("line", {x1: x(one), x2: x(one), y1: y(one.measured), y2: y(one.planned), class: "change"}),
    el("circle", {cx: x(one), cy: y(one.planned), r: 4, class: "planned"},
      el("title", null, `planned ${one.planned.toFixed(2)}`))];
  const measured = (one) => el("circle", {cx: x(one), cy: y(one.measured), r: 4},
    el("title", null, `${one.outcome}: measured ${one.measured.toFixed(2)}`));
  return el("svg", {width, height: high, class: "timeline", role: "img", "aria-label": label},
    scale(1), scale(most), said(34, from), said(width - 64, from + span),
    el("polyline", {points: shown.map((one) => `${x(one)},${y(one.measured)}`).join(" ")}),
    shown.map((one) => [change(one), measured(one)]));
}
