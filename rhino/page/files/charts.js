// Small charts as SVG. Colours are in the style sheet; each chart says its content in words, too.
import {el} from "./dom.js";

const LEVELS = 6;

// A cell for each worker, by zone; `value(worker)` decides its colour: null is unknown. `text(worker)` is shown.
export function heatMap(workers, {value, text, width, chosen, label}) {
  const few = workers.length <= 48, [wide, high] = few ? [132, 50] : workers.length <= 300 ? [30, 24] : [17, 17];
  const columns = Math.max(Math.floor(width / wide), 1);
  const most = Math.max(...workers.map(value), 0), zones = Map.groupBy(workers, (one) => one.zone);
  const made = [];
  let y = 0;
  for (const [zone, here] of [...zones].sort()) {
    if (zones.size > 1) made.push(el("text", {x: 0, y: (y += 20) - 6, class: "zone"}, `${zone || "no zone"} (${here.length})`));
    here.forEach((one, at) => made.push(cell(one, (at % columns) * wide, y + Math.floor(at / columns) * high)));
    y += Math.ceil(here.length / columns) * high;
  }

  function cell(one, x, top) {
    const shown = value(one), level = shown === null ? "unknown" : `l${most ? Math.round((shown / most) * LEVELS) : 0}`;
    const state = one.state === "lost" ? "lost" : one.state !== "live" || one.disk !== "ok" ? "bad" : one.draining ? "draining" : "";
    const name = one.worker_id.length > 16 ? `${one.worker_id.slice(0, 15)}…` : one.worker_id;
    return el("g", {class: `cell ${level} ${state} ${one.worker_id === chosen ? "chosen" : ""}`, "data-worker": one.worker_id},
      el("title", null, `${one.worker_id}, ${one.draining ? "draining, " : ""}${one.state}, disk ${one.disk}: ${text(one)}`),
      el("rect", {x: x + 1, y: top + 1, width: wide - 3, height: high - 3, rx: few ? 5 : 2}),
      few && [el("text", {x: x + 9, y: top + 20}, name), el("text", {x: x + 9, y: top + 37, class: "small"}, text(one))],
      state === "lost" && !few && el("path", {d: `M${x + 4} ${top + 4}l${wide - 9} ${high - 9}m0 ${9 - high}l${9 - wide} ${high - 9}`}));
  }
  return el("svg", {width: columns * wide, height: y, role: "img", "aria-label": label}, made);
}

// A line over time. `points`: [x, y]; `limit`: a level to compare with.
export function line(points, label, limit = 0) {
  const [wide, high] = [240, 44], most = Math.max(...points.map(([, y]) => y), limit, 1e-9);
  const from = points[0]?.[0] ?? 0, span = Math.max((points.at(-1)?.[0] ?? 0) - from, 1);
  const at = ([x, y]) => `${(((x - from) / span) * wide).toFixed(1)},${(high - 2 - (y / most) * (high - 4)).toFixed(1)}`;
  const level = high - 2 - (limit / most) * (high - 4);
  return el("svg", {viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", class: "line", role: "img", "aria-label": label},
    limit > 0 && el("line", {x1: 0, x2: wide, y1: level, y2: level, class: "limit"}),
    el("polyline", {points: points.map(at).join(" ")}));
}

// Decisions over time: the measured imbalance, and the one planned by a move.
export function timeline(decisions, width, label) {
  const shown = decisions.filter((one) => one.measured !== null).reverse();
  if (!shown.length) return null;
  const high = 120, most = Math.max(...shown.flatMap((one) => [one.measured, one.planned ?? 0]), 1.1);
  const from = shown[0].started_ms, span = Math.max(shown.at(-1).started_ms - from, 1);
  const x = (one) => 34 + ((one.started_ms - from) / span) * (width - 50);
  const y = (value) => high - 22 - ((value - 1) / (most - 1)) * (high - 36);
  return el("svg", {width, height: high, class: "timeline", role: "img", "aria-label": label},
    [1, most].map((value) => [el("line", {x1: 30, x2: width - 10, y1: y(value), y2: y(value), class: "limit"}),
      el("text", {x: 0, y: y(value) + 4, class: "small"}, value.toFixed(1))]),
    el("text", {x: 34, y: high - 4, class: "small"}, new Date(from).toLocaleTimeString("en-GB")),
    el("text", {x: width - 64, y: high - 4, class: "small"}, new Date(from + span).toLocaleTimeString("en-GB")),
    el("polyline", {points: shown.map((one) => `${x(one)},${y(one.measured)}`).join(" ")}),
    shown.map((one) => [
      one.planned !== null && el("line", {x1: x(one), x2: x(one), y1: y(one.measured), y2: y(one.planned), class: "change"}),
      one.planned !== null && el("circle", {cx: x(one), cy: y(one.planned), r: 4, class: "planned"}, el("title", null, `planned ${one.planned.toFixed(2)}`)),
      el("circle", {cx: x(one), cy: y(one.measured), r: 4}, el("title", null, `${one.outcome}: measured ${one.measured.toFixed(2)}`))]));
}
