// The parts of the page, each made from the document. `view` is what the person has chosen.
import {$, badge, bytes, clock, count, el, number, put, seconds, table, words} from "./dom.js";
import {heatMap, line, timeline} from "./charts.js";

export const view = {measure: "runs", find: "", sort: {key: "", down: false}, rows: 25, cards: 12, chosen: "", nodes: null};
const used = (one) => (one.stored_bytes + one.free_bytes ? one.stored_bytes / (one.stored_bytes + one.free_bytes) : 0);
const percent = (part) => `${Math.round(part * 100)}%`;
const WELL = {live: "good", suspect: "warn", lost: "bad", confirmed: "good", helped: "good", rolled_back: "bad", failed: "bad", cancelled: "warn"};
const MEASURES = {
  runs: ["Virtual nodes", (one) => one.runs, (one) => count(one.runs, "virtual node")],
  task_s: ["Task time", (one) => one.task_s, (one) => `${seconds(one.task_s)} a batch`],
  stored_bytes: ["Stored bytes", (one) => one.stored_bytes, (one) => `${bytes(one.stored_bytes)} stored`],
  disk: ["Disk used by state", used, (one) => `${percent(used(one))} of disk`],
  whole_copies: ["Whole copies", (one) => one.whole_copies, (one) => count(one.whole_copies, "copy", "copies")],
  catching_up: ["Copies catching up", (one) => one.catching_up, (one) => `${number(one.catching_up)} catching up`],
  versions_behind: ["Versions behind", (one) => one.versions_behind, (one) => `${count(one.versions_behind, "version")} behind`],
};
const act = (text, kind, names) => el("button", {type: "button", "data-act": kind, "data-names": JSON.stringify(names)}, text);
const more = (left, what) => left > 0 && el("p", null, el("button", {type: "button", "data-more": what}, `Show more (${number(left)})`));
const list = (texts) => texts.length > 0 && el("ul", null, texts.map((one) => el("li", null, one)));
const facts = (pairs) => el("dl", {class: "facts"}, pairs.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));

export function start() {
  $("measure").append(...Object.entries(MEASURES).map(([key, [name]]) => el("option", {value: key}, name)));
}

export function render(doc) {
  const page = doc.page, silent = doc.at_ms ? ` The figures are of ${clock(doc.at_ms)}.` : "";
  $("cluster").textContent = `manager ${page.manager}${page.read_only ? ", read-only" : ""}`;
  $("problem").hidden = !page.problem;
  if (page.problem) $("problem").textContent = `The manager does not answer: ${page.problem}.${silent}`;
  if (!doc.verdict) return;
  document.title = `${doc.verdict.level.toUpperCase()} · Rhino`;
  verdict(doc.verdict);
  totals(doc);
  workers(doc);
  queries(doc);
  moves(doc);
  adaptation(doc);
  archive(doc.archive);
  history(doc.actions);
}

function verdict({level, reasons, hints}) {
  const kind = {ok: "good", degraded: "warn", critical: "bad"}[level];
  put("verdict", el("h1", {class: kind, "aria-live": "polite"}, level.toUpperCase()),
    el("div", null, reasons.length ? list(reasons) : el("p", null, "All copies are there."),
      hints.length > 0 && el("details", {open: hints.length < 4}, el("summary", null, count(hints.length, "note")), list(hints))));
}

function totals({totals: all, archive: kept}) {
  const lacking = [["short of copies", all.short], ["below minCopies", all.below], ["without a copy", all.none]].filter(([, groups]) => groups);
  const age = kept && Math.max(0, ...kept.queries.map((one) => one.age_s));
  const tile = (name, value, note) => el("div", null, el("dt", null, name), el("dd", null, value), el("dd", {class: "small"}, note));
  put("totals",
    tile("Workers live", `${number(all.workers_live)} of ${number(all.workers)}`, `${bytes(all.stored_bytes)} stored, ${bytes(all.free_bytes)} free`),
    tile("Queries running", `${number(all.queries_running)} of ${number(all.queries)}`, count(all.virtual_nodes, "virtual node")),
    tile("Groups with all copies", `${number(all.full)} of ${number(all.groups)}`, lacking.map(([name, groups]) => `${number(groups)} ${name}`).join(", ") || "none lacks a copy"),
    tile("Archive", !kept ? "none" : age ? `${seconds(age)} behind` : "up to date", kept ? kept.url : "rhino manager --archive"));
}

const trouble = (one) => (one.state !== "live" ? 4 : 0) + (one.disk !== "ok" ? 2 : 0) + (one.damaged_files ? 2 : 0) + (one.draining ? 1 : 0);

function workers({workers: all, page}) {
  const [name, value, text] = MEASURES[view.measure], find = view.find.toLowerCase(), {key, down} = view.sort;
  const found = all.filter((one) => `${one.worker_id} ${one.host} ${one.zone}`.toLowerCase().includes(find));
  const most = found.reduce((best, one) => (value(one) > value(best) ? one : best), found[0]);
  const label = found.length ? `${count(found.length, "worker")} by ${name.toLowerCase()}; most: ${most.worker_id}, ${text(most)}` : "no worker";
  put("map", el("p", {class: "small"}, label), found.length > 0 && heatMap(found, {value, text, label, width: $("map").clientWidth || 320, chosen: view.chosen}));
  const order = key
    ? (a, b) => (down ? -1 : 1) * (typeof a[key] === "string" ? a[key].localeCompare(b[key]) : a[key] - b[key])
    : (a, b) => trouble(b) - trouble(a) || b.runs - a.runs || a.worker_id.localeCompare(b.worker_id);
  const rows = found.sort(order).slice(0, view.rows).map((one) => [
    el("button", {type: "button", class: "link", "data-worker": one.worker_id}, one.worker_id),
    marks(one), [one.host, one.zone && ` (${one.zone})`], `${number(one.runs)} of ${number(one.desired)}`, seconds(one.task_s),
    [number(one.whole_copies), one.catching_up > 0 && ` + ${number(one.catching_up)} catching up`], number(one.versions_behind),
    bytes(one.stored_bytes), bytes(one.free_bytes), seconds(one.last_heartbeat_ago_s),
    one.safe_to_remove === null ? "" : one.safe_to_remove ? badge("safe", "good") : badge("not yet", "warn"),
    page.read_only ? "" : one.draining ? act("End drain…", "end drain", {worker: one.worker_id}) : act("Drain…", "drain", {worker: one.worker_id}),
  ]);
  const head = [["Worker", "worker_id"], ["State", "state"], "Host (zone)", ["Runs of desired", "runs"], ["Task time", "task_s"], ["Whole copies", "whole_copies"],
    ["Versions behind", "versions_behind"], ["Stored", "stored_bytes"], ["Free", "free_bytes"], ["Beat", "last_heartbeat_ago_s"], "Safe to remove", "Action"];
  put("worker-table", table("Workers", head, rows, view.sort), more(found.length - view.rows, "rows"));
  chosen(all.find((one) => one.worker_id === view.chosen), page);
}

function marks(one) {
  return [badge(one.state, WELL[one.state]), one.disk !== "ok" && badge(`disk ${one.disk}`, "bad"), one.draining && badge("draining", "warn"),
    one.damaged_files > 0 && badge(`${one.damaged_files} damaged files`, "bad")];
}

// The worker that was clicked, with its virtual nodes: those were asked for then.
function chosen(one, page) {
  put("chosen", one && el("section", {class: "card", "aria-label": `Worker ${one.worker_id}`},
    el("h3", null, one.worker_id, " ", marks(one), el("button", {type: "button", class: "right", "data-worker": ""}, "Close")),
    one.disk_message && el("p", null, one.disk_message),
    facts([["Host", one.host], ["Zone / rack", `${one.zone || "-"} / ${one.rack || "-"}`], ["Peer address", one.peer_address], ["Version", one.rhino_version || "?"],
      ["Owns groups", number(one.owned_groups)], ["Secondary of", number(one.secondary_groups)], ["Received as copies", bytes(one.replicated_bytes)]]),
    view.nodes === null ? el("p", null, "Asking for its virtual nodes.")
      : view.nodes.length ? el("ul", null, view.nodes.map(({job, query, nodes}) => el("li", null, el("b", null, query), " runs here: ", nodes.join(" "), " ",
        !page.read_only && act("Move…", "move", {job, virtual_nodes: nodes.join(" "), target: ""}))))
      : el("p", null, "No virtual node ran here in the newest batch.")));
}

function queries({queries: all, page}) {
  const sorted = [...all].sort((a, b) => b.connected - a.connected || (b.batches.at(-1)?.[2] ?? 0) - (a.batches.at(-1)?.[2] ?? 0));
  put("query-cards", all.length ? el("div", {class: "cards"}, sorted.slice(0, view.cards).map((one) => query(one, page)))
    : el("p", null, "No query has reported to this manager."), more(all.length - view.cards, "cards"));
}

function query(one, page) {
  const state = one.delete_in_s !== null ? badge("forgotten", "warn") : one.connected ? badge("running", "good") : badge("no driver", "warn");
  const behind = one.lags.map((lag) => `${number(lag.behind)} ${lag.unit} of ${lag.source}`).join(", ");
  const copies = [["all copies", one.full], ["short", one.short], ["below minCopies", one.below], ["no copy", one.none]].filter(([, groups]) => groups);
  return el("article", {class: "card", "aria-label": `Query ${one.query}`},
    el("h3", null, one.query, " ", state),
    course(one),
    facts([
      ["Newest batch", [one.batch_id < 0 ? "none" : number(one.batch_id), one.batch_ago_s !== null && `, ${seconds(one.batch_ago_s)} ago`]],
      ["Usual interval", seconds(one.batch_interval_s)],
      ["Runs on", `${count(one.workers, "worker")}, ${one.executors === null ? "?" : count(one.executors, "executor")}`],
      ["Workers wanted", el("span", {title: one.workers_wanted_why}, number(one.workers_wanted))],
      ["Virtual nodes", [number(one.virtual_nodes), one.missed_now > 0 && ` (${number(one.missed_now)} away)`]],
      ["Imbalance of tasks", number(one.imbalance)],
      ["State", `${bytes(one.state_bytes)}, ${one.rows === null ? "?" : number(one.rows)} keys`],
      ["Copies", copies.map(([name, groups]) => `${number(groups)} ${name}`).join(", ") || "none yet"],
      ["Archived", one.archive ? `batch ${one.archive.batch_id < 0 ? "none" : number(one.archive.batch_id)}, ${one.archive.whole ? "up to date" : `${seconds(one.archive.age_s)} behind`}` : "no"],
      ["Behind its sources", behind || "not reported"],
    ]),
    one.lacking.length > 0 && el("p", null, `Lack copies: ${one.lacking.join(", ")}`),
    one.restarts.length > 0 && el("p", null, `Restarted: ${one.restarts.map(([at]) => clock(at)).join(", ")}`),
    one.delete_in_s !== null && el("p", null, `Its state is deleted in ${seconds(one.delete_in_s)}.`),
    !page.read_only && one.connected && act("Move virtual nodes…", "move", {job: one.job, virtual_nodes: "", target: ""}));
}

// Its batches since this page's process began: durations against the trigger, sources, and copies.
function course({batches, copies_behind: copies}) {
  const chart = (name, points, text, limit) => {
    if (points.length < 2) return el("figure", null, el("figcaption", null, name, el("b", null, points.length ? text(points[0][1]) : "no batch yet")));
    const most = Math.max(...points.map(([, y]) => y)), label = `newest ${text(points.at(-1)[1])}, most ${text(most)} in ${points.length}`;
    return el("figure", null, el("figcaption", null, name, el("b", null, text(points.at(-1)[1])), ` most ${text(most)}`), line(points, `${name}: ${label}`, limit));
  };
  const behind = batches.filter((one) => one[5] !== null);
  return el("div", {class: "charts"},
    chart("Batch time", batches.map(([at, , took]) => [at, took]), seconds, batches.at(-1)?.[3]),
    behind.length > 0 && chart("Source lag", behind.map((one) => [one[0], one[5]]), number),
    chart("Copies behind (versions)", copies, number));
}

function moves({handovers, drains, page}) {
  const drain = (one) => el("article", {class: "card"},
    el("h3", null, `Drain of ${one.worker} `, one.safe_to_remove ? badge("safe to remove", "good") : badge("not safe yet", "warn")),
    one.leaves_in_s !== null && el("p", null, `It leaves in ${seconds(one.leaves_in_s)}.`),
    one.blockers.length > 0 && el("p", null, "Not safe yet, because:"), list(one.blockers),
    !page.read_only && act("End drain…", "end drain", {worker: one.worker}));
  const rows = handovers.map((one) => [one.handover_id, clock(one.started_ms), [badge(words(one.phase), WELL[one.phase] ?? ""), one.steps > 1 && ` step ${one.step} of ${one.steps}`],
    one.plan.intent, one.plan.queries.join(", "), number(one.plan.moves_total), `${bytes(one.bytes_moved)} of ${bytes(one.plan.bytes_to_move)}`,
    against(one.measured?.total_s, one.plan.prediction.total_s), against(one.measured?.pause_s, one.plan.prediction.pause_s),
    one.reason || (one.waiting_for.length ? `waits for ${one.waiting_for.join(", ")}` : ""), one.by,
    !page.read_only && one.cancellable ? act("Cancel…", "cancel", {handover_id: one.handover_id}) : ""]);
  const head = ["Handover", "Started", "Phase", "Intent", "Queries", "Moves", "Copied of planned", "Took (predicted)", "Pause (predicted)", "Reason", "By", "Action"];
  put("move-list", drains.length > 0 && el("div", {class: "cards"}, drains.map(drain)),
    handovers.length ? table("Handovers", head, rows) : el("p", null, "No handover is known. None runs."));
}

const against = (actual, predicted) => `${seconds(actual)} (${seconds(predicted)})`;

function adaptation({adaptation: mode, decisions}) {
  const told = {off: "Adaptation is off.", observe: "Adaptation observes, and moves nothing.", act: "Adaptation acts: it moves virtual nodes by itself."};
  const figures = (one) => [["measured", one.measured], ["forecast", one.expected], ["planned", one.planned]].filter(([, value]) => value !== null)
    .map(([name, value]) => `${name} ${value.toFixed(2)}`).join(", ");
  const rows = decisions.map((one) => [[clock(one.started_ms), one.times > 1 && ` (${one.times} times until ${clock(one.finished_ms)})`], one.query,
    badge(words(one.outcome), WELL[one.outcome] ?? ""), figures(one), one.gain_s === null ? "" : `${seconds(one.gain_s)} / ${seconds(one.cost_s)}`,
    one.moves_total ? `${one.moves.slice(0, 3).map((move) => `${move.virtual_node} ${move.origin} → ${move.target}`).join(", ")}${one.moves_total > 3 ? ` and ${one.moves_total - 3} more` : ""}` : "",
    one.handover ? against(one.handover.measured?.total_s, one.handover.plan.prediction.total_s) : "",
    one.handover ? against(one.handover.measured?.pause_s, one.handover.plan.prediction.pause_s) : "", one.why]);
  const head = ["When", "Query", "Decision", "Imbalance", "Saves / costs", "Moves", "Took (predicted)", "Pause (predicted)", "Why"];
  const label = `Imbalance of task time in ${count(decisions.length, "decision")}; hollow: planned by a move`;
  put("decisions", el("p", null, told[mode] ?? mode), timeline(decisions, Math.min($("decisions").clientWidth || 320, 900), label),
    decisions.length > 0 ? table("Decisions of adaptation", head, rows) : el("p", null, "No decision yet."));
}

function archive(kept) {
  if (!kept) return put("archive-state", el("p", null, "This cluster has no archive."));
  const drills = kept.drills, rows = kept.queries.map((one) => [one.name || one.job, one.batch_id < 0 ? "none" : number(one.batch_id), number(one.logged_batch_id),
    one.whole ? badge("up to date", "good") : `${seconds(one.age_s)} behind`, clock(one.written_ms), one.error ? badge(one.error, "bad") : one.running ? "archiving" : "idle"]);
  put("archive-state", kept.error && el("p", {class: "notice"}, `It has stopped: ${kept.error}`),
    facts([["Place", kept.url], ["Every", seconds(kept.every_s)], ["Keeps", kept.keep],
      ["Restore drills", drills.every_s ? `${drills.passed} passed, ${drills.failed} failed, ${drills.unproven} unproven, ${drills.not_run} not run` : "none are made"],
      ["Last passed drill", drills.passed ? `${seconds(drills.passed_age_s)} ago` : "none"]]),
    list(drills.failures), table("Archived queries", ["Query", "Archived batch", "Logged batch", "Age", "Written", "State"], rows));
}

function history(actions) {
  const rows = actions.map((one) => [clock(one.at_ms), one.by || "?", one.kind, one.name || one.job, one.worker, one.handover_id, one.detail, [one.outcome, one.reason && `: ${one.reason}`]]);
  put("history-table", actions.length ? table("History", ["When", "Who", "What", "Query", "Worker", "Handover", "Detail", "Result"], rows) : el("p", null, "Nobody has changed anything yet."));
}
