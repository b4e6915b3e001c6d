// Move, drain and cancel: the plan is shown first, then a second press carries it out.
import {$, bytes, count, el, list, number, seconds, table, words} from "./dom.js";
import {call} from "./net.js";

const KINDS = { // title, and the button that carries it out
  move: ["Move virtual nodes", "Move them"], drain: ["Drain a worker", "Drain it"],
  "end drain": ["End a drain", "End the drain"], cancel: ["Cancel a handover", "Cancel the rest"],
};
const HEAD = ["Virtual node", "Query", "Step", "From", "To", "Kind", "To copy", "Why there"];
let next = () => {}; // carried out by the button "yes"

// Opens the dialog for an action with these names. `doc`: for the choices of a move.
export function open(kind, names, doc) {
  if (kind === "move") choose(names, doc);
  else {
    show(KINDS[kind][0], "", "Asking the manager for the plan.");
    plan({kind, ...names});
  }
  $("dialog").showModal();
}

export function start() {
  $("dialog-no").addEventListener("click", () => $("dialog").close());
  $("dialog-yes").addEventListener("click", () => next());
}

function show(title, yes, ...content) {
  $("dialog-head").textContent = title;
  $("dialog-error").textContent = "";
  $("dialog-yes").textContent = yes;
  $("dialog-yes").hidden = !yes;
  $("dialog-body").replaceChildren(...content.flat(Infinity).filter(Boolean));
}

async function attempt(what) {
  $("dialog-yes").disabled = true;
  $("dialog-error").textContent = "";
  try {
    await what();
  } catch (error) {
    $("dialog-error").textContent = error.message;
  }
  $("dialog-yes").disabled = false;
}

function choose(names, doc) {
  const field = (id, text, value, listed) =>
    el("label", null, text, el("input", {id, value, list: listed, autocomplete: "off"}));
  const targets = doc.workers.filter((one) => one.state === "live" && !one.draining);
  const query = doc.queries.find((one) => one.job === names.job)?.query ?? names.job;
  show(`${KINDS.move[0]} of ${query}`, "Show the plan",
    field("move-nodes", "Virtual nodes, such as 0/2 0/4-6", names.virtual_nodes),
    field("move-target", "To worker", names.target, "targets"),
    el("datalist", {id: "targets"}, targets.map((one) => el("option", {value: one.worker_id}))));
  next = () =>
    plan({kind: "move", job: names.job, virtual_nodes: $("move-nodes").value, target: $("move-target").value});
}

const plan = (asked) => attempt(async () => {
  const [title, yes] = KINDS[asked.kind], planned = await call("data/plan", asked);
  show(`${title}: the plan`, yes, summary(planned));
  next = () => attempt(async () => {
    await call("data/run", {id: planned.id});
    show(title, "", "It has begun. The page shows how it goes.");
    $("dialog-no").focus();
  });
});

function summary({kind, names, plan: found, drain, handover}) {
  const said = (text) => el("p", null, text);
  const moved = (move) => [move.virtual_node, move.query, number(move.step), move.origin, move.target, words(move.kind),
    bytes(move.bytes_to_move), move.why];
  return [
    said(Object.values(names).join(", ")),
    kind === "end drain" && said(`Worker ${drain.worker} gets state again. Running handovers go on.`),
    kind === "drain" && [said("In the way of a removal now:"), list(drain.blockers)],
    kind === "drain" && !found && said("No virtual node is there. Copies move to other workers."),
    handover && said(`${handover.plan.intent}: ${words(handover.phase)}, step ${handover.step} of ${handover.steps}. ` +
      "Confirmed steps stay, and a marked step goes on."),
    found && [
      said(`${found.intent}: ${count(found.moves_total, "move")} in ${count(found.steps, "step")}, ` +
        `${bytes(found.bytes_to_move)} to copy.`),
      said(`Predicted: ${seconds(found.prediction.total_s)}, longest pause ${seconds(found.prediction.pause_s)}, ` +
        `from ${found.prediction.basis}.`),
      found.hot.map(said),
      table("Moves", HEAD, found.moves.map(moved)),
      found.moves_total > found.moves.length && said(`and ${number(found.moves_total - found.moves.length)} more`),
    ],
  ];
}
