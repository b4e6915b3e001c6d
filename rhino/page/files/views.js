// The parts of the page, each made from the document. `view` is what the person has chosen.
import {$, badge, bytes, clock, count, el, list, number, put, seconds, table, words} from "./dom.js";
import {heatMap, line, scale, timeline} from "./charts.js";

export const view = {
  measure: "runs", find: "", sort: {key: "", down: false}, rows: 25, cards: 12, chosen: "", nodes: null,
  wrong: "", // why the nodes of the chosen worker are not known
};
const KINDS = {
  ok: "good", degraded: "warn", critical: "bad", live: "good", suspect: "warn", lost: "bad",
  confirmed: "good", rolled_back: "bad", cancelled: "warn", redirected: "warn", helped: "good", failed: "bad",
};
const used = (one) => one.stored_bytes / Math.max(one.stored_bytes + one.free_bytes, 1);
const MEASURES = {
  runs: ["Virtual nodes", (one) => one.runs, (one) => count(one.runs, "virtual node")],
  task_s: ["Task time", (one) => one.task_s, (one) => `${seconds(one.task_s)} of tasks`],
  stored_bytes: ["Stored bytes", (one) => one.stored_bytes, (one) => `${bytes(one.stored_bytes)} stored`],
  disk: ["Disk used by state", used, (one) => `${Math.round(used(one) * 100)}% of its disk`],
  whole_copies: ["Whole copies", (one) => one.whole_copies, (one) => count(one.whole_copies, "copy", "copies")],
  catching_up: ["Copies catching up", (one) => one.catching_up, (one) => `${number(one.catching_up)} catching up`],
  versions_behind: ["Versions behind", (one) => one.versions_behind, (one) => `${number(one.versions_behind)} behind`],
};
const act = (text, kind, names) =>
  el("button", {type: "button", "data-act": kind, "data-names": JSON.stringify(names)}, text);
const more = (left, what) =>
  left > 0 && el("p", null, el("button", {type: "button", "data-more": what}, `Show more (${number(left)})`));
const facts = (pairs) => el("dl", {class: "facts"},
  pairs.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
const against = (actual, predicted) => `${seconds(actual)} (${seconds(predicted)})`;
const note = (text) => el("p", null, text);

export function start() {
  $("measure").append(...Object.entries(MEASURES).map(([key, [name]]) => el("option", {value: key}, name)));
}

export function render(doc) {
  const {page} = doc, silent = doc.at_ms ? ` The figures are of ${clock(doc.at_ms)}.` : "";
  $("cluster").textContent = `manager ${page.manager}${page.read_only ? ", read-only" : ""}`;
  $("problem").hidden = !page.problem;
  $("problem").textContent = page.problem && `The manager does not answer: ${page.problem}.${silent}`;
  if (!doc.verdict) return;
  document.title = `${doc.verdict.level.toUpperCase()} · Rhino`;
  for (const part of [verdict, totals, workers, queries, moves, adaptation, archive, history]) part(doc);
}

function verdict({verdict: {level, reasons, hints}}) {
  put("verdict",
    el("h1", {class: KINDS[level], "aria-live": "polite"}, level.toUpperCase()),
    el("div", null, list(reasons) || note("All copies are there."), hints.length > 0 &&
      el("details", {open: hints.length < 4}, el("summary", null, count(hints.length, "note")), list(hints))));
}

function totals({totals: all, archive: kept}) {
  const lacking = [[all.short, "short of copies"], [all.below, "below minCopies"], [all.none, "without a copy"]];
  const lack = lacking.filter(([groups]) => groups).map(([groups, name]) => `${number(groups)} ${name}`).join(", ");
  const age = kept && Math.max(0, ...kept.queries.map((one) => one.age_s));
  const tile = (name, value, more) =>
    el("div", null, el("dt", null, name), el("dd", null, value), el("dd", {class: "small"}, more));
  const of = (part, whole) => `${number(part)} of ${number(whole)}`;
  put("totals",
    tile("Workers live", of(all.workers_live, all.workers),
      `${bytes(all.stored_bytes)} stored, ${bytes(all.free_bytes)} free`),
    tile("Queries running", of(all.queries_running, all.queries), count(all.virtual_nodes, "virtual node")),
    tile("Replica groups with all copies", of(all.full, all.groups), lack || "none lacks a copy"),
    tile("Archive", !kept ? "none" : age ? `${seconds(age)} behind` : "up to date", kept?.url));
}

const trouble = (one) => 4 * (one.state !== "live") + 2 * (one.disk !== "ok" || one.damaged_files > 0) + one.draining;

function workers({workers: all, page}) {
  const [name, value, text] = MEASURES[view.measure], find = view.find.toLowerCase(), {key, down} = view.sort;
  const found = all.filter((one) => `${one.worker_id} ${one.host} ${one.zone}`.toLowerCase().includes(find));
  const most = found.reduce((best, one) => (value(one) > value(best) ? one : best), found[0]);
  const label = most ? `${name} of ${count(found.length, "worker")}; most: ${most.worker_id}, ${text(most)}` : "None.";
  const width = ($("map").clientWidth || 320) - 34; // without its padding
  put("map", el("p", {class: "small"}, label, " ", scale()),
    most && heatMap(found, {value, text, label, width, chosen: view.chosen}));
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  const order = key
    ? (a, b) => (down ? -1 : 1) * compare(a[key], b[key])
    : (a, b) => trouble(b) - trouble(a) || b.runs - a.runs || compare(a.worker_id, b.worker_id);
  const rows = found.sort(order).slice(0, view.rows).map((one) => [
    el("button", {type: "button", class: "link", "data-worker": one.worker_id}, one.worker_id),
    [marks(one), one.draining && safety(one)],
    page.read_only || (one.state !== "live" && !one.draining) ? "" : drainButton(one.worker_id, one.draining),
    one.host + (one.zone && ` (${one.zone})`),
    number(one.runs) + (one.desired === one.runs ? "" : `, ${number(one.desired)} desired`),
    seconds(one.task_s),
    number(one.whole_copies) + (one.catching_up ? ` + ${number(one.catching_up)} catching up` : ""),
    number(one.versions_behind),
    bytes(one.stored_bytes),
    bytes(one.free_bytes),
    seconds(one.last_heartbeat_ago_s),
  ]);
  const head = [["Worker", "worker_id"], ["State", "state"], "Action", "Host (zone)", ["Virtual nodes", "runs"],
    ["Task time", "task_s"], ["Whole copies", "whole_copies"], ["Versions behind", "versions_behind"],
    ["Stored", "stored_bytes"], ["Free", "free_bytes"], ["Beat", "last_heartbeat_ago_s"]];
  put("worker-table", table("Workers", head, rows, view.sort), more(found.length - view.rows, "rows"));
  const one = all.find((worker) => worker.worker_id === view.chosen);
  put("chosen", one && chosen(one, page));
}

const drainButton = (worker, draining) =>
  draining ? act("End drain…", "end drain", {worker}) : act("Drain…", "drain", {worker});

function marks(one) {
  return [
    badge(one.state, KINDS[one.state]), " ", one.disk !== "ok" && badge(`disk ${one.disk}`, "bad"), " ",
    one.draining && badge("draining", "warn"), " ",
    one.damaged_files > 0 && badge(`${number(one.damaged_files)} damaged files`, "bad"),
  ];
}

// The worker that was clicked, with its virtual nodes: they were asked for then.
function chosen(one, page) {
  const here = ({job, query, nodes}) => el("li", null, el("b", null, query), " runs here: ", nodes.join(" "), " ",
    !page.read_only && act("Move…", "move", {job, virtual_nodes: nodes.join(" "), target: ""}));
  return el("section", {class: "card", "aria-label": `Worker ${one.worker_id}`},
    el("button", {type: "button", class: "right", "data-worker": ""}, "Close"),
    el("h3", null, one.worker_id, " ", marks(one)),
    one.disk_message && note(one.disk_message),
    facts([["Host", one.host], ["Zone", one.zone || "none"], ["Rack", one.rack || "none"],
      ["Peer address", one.peer_address], ["Version", one.rhino_version || "?"],
      ["Owns groups", number(one.owned_groups)], ["Secondary of", number(one.secondary_groups)],
      ["Received as copies", bytes(one.replicated_bytes)]]),
    view.nodes === null ? note(view.wrong || "Asking for its virtual nodes.")
      : view.nodes.length ? el("ul", null, view.nodes.map(here))
      : note("No virtual node ran here in the newest batch."));
}

function queries({queries: all, page}) {
  const newest = (one) => one.batches.at(-1)?.[2] ?? 0;
  const sorted = [...all].sort((a, b) => b.connected - a.connected || newest(b) - newest(a));
  put("query-cards",
    all.length ? el("div", {class: "cards"}, sorted.slice(0, view.cards).map((one) => query(one, page)))
      : note("No query has reported to this manager."),
    more(all.length - view.cards, "cards"));
}

function query(one, page) {
  const state = one.delete_in_s !== null ? badge("forgotten", "warn")
    : one.connected ? badge("running", "good") : badge("no driver", "warn");
  const copies = [[one.full, "with all"], [one.short, "short"], [one.below, "below minCopies"], [one.none, "lost"]];
  const told = copies.filter(([groups]) => groups).map(([groups, name]) => `${number(groups)} ${name}`);
  const batch = (id) => (id < 0 ? "none" : number(id));
  const move = {job: one.job, virtual_nodes: "", target: ""};
  return el("article", {class: "card", "aria-label": `Query ${one.query}`},
    el("h3", null, one.query, " ", state),
    course(one),
    facts([
      ["Newest batch", batch(one.batch_id) + (one.batch_ago_s === null ? "" : `, ${seconds(one.batch_ago_s)} ago`)],
      ["Usual interval", seconds(one.batch_interval_s)],
      ["Runs on", `${count(one.workers, "worker")}, ${one.executors === null ? "?" : number(one.executors)} executors`],
      ["Workers wanted", el("span", {title: one.workers_wanted_why}, number(one.workers_wanted))],
      ["Virtual nodes", number(one.virtual_nodes) + (one.missed_now ? `, ${number(one.missed_now)} away` : "")],
      ["Imbalance of tasks", number(one.imbalance)],
      ["State", `${bytes(one.state_bytes)}, ${number(one.rows)} keys`],
      ["Copies of groups", told.join(", ") || "none yet"],
      ["Archived batch", !one.archive ? "no archive" : batch(one.archive.batch_id) +
        (one.archive.whole ? ", up to date" : `, ${seconds(one.archive.age_s)} behind`)],
      ["Sources behind", one.lags.map((lag) => `${number(lag.behind)} ${lag.unit} of ${lag.source}`).join(", ") || "?"],
    ]),
    one.lacking.length > 0 && note(`Lack copies: ${one.lacking.join(", ")}`),
    one.restarts.length > 0 && note(`Restarted at ${one.restarts.map(([at]) => clock(at)).join(", ")}`),
    one.delete_in_s !== null && note(`Its state is deleted in ${seconds(one.delete_in_s)}.`),
    !page.read_only && one.connected && act("Move virtual nodes…", "move", move));
}

// Its batches since the process of the page began: durations against the trigger, sources, and copies.
function course({batches, copies_behind: copies}) {
  const chart = (name, points, text, limit) => {
    if (points.length < 2) return el("figure", null, el("figcaption", null, name, el("b", null, "none yet")));
    const top = Math.max(...points.map(([, y]) => y)), [newest, most] = [text(points.at(-1)[1]), text(top)];
    return el("figure", null, el("figcaption", null, name, el("b", null, newest), ` most ${most}`),
      top > 0 && line(points, `${name}: newest ${newest}, most ${most} in ${points.length}`, limit));
  };
  const behind = batches.filter((one) => one[5] !== null);
  return [
    chart("Batch time", batches.map(([at, , took]) => [at, took]), seconds, batches.at(-1)?.[3]),
    behind.length > 0 && chart("Sources behind", behind.map((one) => [one[0], one[5]]), number),
    chart("Copies behind, in versions", copies, number),
  ];
}

const safety = (drain) => (drain.safe_to_remove ? badge("safe to remove", "good") : badge("not safe yet", "warn"));

function moves({handovers, drains, page}) {
  const drain = (one) => el("article", {class: "card", "aria-label": `Drain of ${one.worker}`},
    el("h3", null, `Drain of ${one.worker} `, safety(one)),
    one.leaves_in_s !== null && note(`It leaves in ${seconds(one.leaves_in_s)}.`),
    one.blockers.length > 0 && note("Not safe yet, because:"), list(one.blockers),
    !page.read_only && drainButton(one.worker, true));
  const rows = handovers.map((one) => [
    one.handover_id, clock(one.started_ms),
    [badge(words(one.phase), KINDS[one.phase]), one.steps > 1 && ` step ${one.step} of ${one.steps}`, " ",
      !page.read_only && one.cancellable && act("Cancel…", "cancel", {handover_id: one.handover_id})],
    one.reason || (one.waiting_for.length ? `waits for ${one.waiting_for.join(", ")}` : ""),
    one.plan.intent, one.plan.queries.join(", "), number(one.plan.moves_total),
    against(one.measured?.total_s, one.plan.prediction.total_s),
    against(one.measured?.pause_s, one.plan.prediction.pause_s),
    `${bytes(one.bytes_moved)} of ${bytes(one.plan.bytes_to_move)}`, one.by,
  ]);
  const head = ["Handover", "Started", "Phase", "Reason", "Intent", "Queries", "Moves", "Took (predicted)",
    "Pause (predicted)", "Copied of planned", "By"];
  put("move-list", drains.length > 0 && el("div", {class: "cards"}, drains.map(drain)),
    rows.length ? table("Handovers", head, rows) : note("No handover is known."));
}

const MODES = {
  off: "Adaptation is off: nothing is observed.", observe: "Adaptation observes, and moves nothing.",
  act: "Adaptation acts: it moves virtual nodes by itself.",
};

function adaptation({adaptation: mode, decisions}) {
  const figures = (one) => [["measured", one.measured], ["forecast", one.expected], ["planned", one.planned]]
    .filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value.toFixed(2)}`).join(", ");
  const moved = (one) => one.moves.slice(0, 3).map((move) => `${move.virtual_node} ${move.origin} → ${move.target}`)
    .join(", ") + (one.moves_total > 3 ? ` and ${one.moves_total - 3} more` : "");
  const rows = decisions.map((one) => [
    clock(one.started_ms) + (one.times > 1 ? `, ${number(one.times)} times until ${clock(one.finished_ms)}` : ""),
    one.query, badge(words(one.outcome), KINDS[one.outcome]), one.why, figures(one),
    one.gain_s === null ? "" : `${seconds(one.gain_s)} / ${seconds(one.cost_s)}`, moved(one),
    one.handover ? against(one.handover.measured?.total_s, one.handover.plan.prediction.total_s) : "",
    one.handover ? against(one.handover.measured?.pause_s, one.handover.plan.prediction.pause_s) : "",
  ]);
  const head = ["When", "Query", "Decision", "Why", "Imbalance", "Saves / costs", "Moves", "Took (predicted)",
    "Pause (predicted)"];
  const chart = timeline(decisions, Math.min($("decisions").clientWidth || 320, 900),
    `Imbalance of task time in the newest ${count(decisions.length, "decision")}`);
  put("decisions", note(MODES[mode] ?? mode),
    chart && el("figure", null, el("figcaption", null, "Imbalance: measured ●, planned by a move ○"), chart),
    rows.length ? table("Decisions of adaptation", head, rows) : note("No decision yet."));
}

function archive({archive: kept}) {
  if (!kept) return put("archive-state", note("This cluster has no archive."));
  const {drills} = kept, rows = kept.queries.map((one) => [
    one.name || one.job, one.batch_id < 0 ? "none" : number(one.batch_id), number(one.logged_batch_id),
    one.whole ? badge("up to date", "good") : `${seconds(one.age_s)} behind`, clock(one.written_ms),
    one.error ? badge(one.error, "bad") : one.running ? "archiving" : "idle",
  ]);
  const counted = ["passed", "failed", "unproven", "not_run"].map((name) => `${number(drills[name])} ${words(name)}`);
  return put("archive-state",
    kept.error && el("p", {class: "notice"}, `It has stopped: ${kept.error}`),
    facts([["Place", kept.url], ["Every", seconds(kept.every_s)], ["Keeps", kept.keep],
      ["Restore drills", drills.every_s ? counted.join(", ") : "none are made"],
      ["Last passed drill", drills.passed ? `${seconds(drills.passed_age_s)} ago` : "none"]]),
    list(drills.failures),
    table("Archived queries", ["Query", "Archived batch", "Logged batch", "Age", "Written", "State"], rows));
}

function history({actions}) {
  const rows = actions.map((one) => [
    clock(one.at_ms), one.by || "?", one.kind, one.name || one.job, one.worker, one.handover_id, one.detail,
    one.outcome + (one.reason && `: ${one.reason}`),
  ]);
  const head = ["When", "Who", "What", "Query", "Worker", "Handover", "Detail", "Result"];
  put("history-table", rows.length ? table("History", head, rows) : note("Nobody has changed anything yet."));
}
