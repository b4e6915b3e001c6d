// Move, drain and cancel: the plan is shown first, then a second press carries it out.
import {$, bytes, el, number, seconds, table, words} from "./dom.js";
import {call} from "./net.js";

const TITLES = {move: "Move virtual nodes", drain: "Drain a worker", "end drain": "End a drain", cancel: "Cancel a handover"};
const YES = {move: "Move them", drain: "Drain it", "end drain": "End the drain", cancel: "Cancel the rest"};
let next = () => {}; // what the button for "yes" does

// Opens the dialog for an action with these names. `doc`: for the choices of a move.
export function open(kind, names, doc) {
  show(TITLES[kind], "");
  if (kind === "move") choose(names, doc);
  else plan({kind, ...names});
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
  try {
    await what();
  } catch (error) {
    $("dialog-error").textContent = error.message;
  }
  $("dialog-yes").disabled = false;
}

function choose(names, doc) {
  const field = (id, text, value, listed) => el("label", null, text, el("input", {id, value, list: listed, autocomplete: "off"}));
  const targets = doc.workers.filter((one) => one.state === "live" && !one.draining);
  const query = doc.queries.find((one) => one.job === names.job)?.query ?? names.job;
  show(`${TITLES.move} of ${query}`, "Show the plan",
    field("move-nodes", "Virtual nodes, such as 0/2 0/4-6", names.virtual_nodes), field("move-target", "To worker", names.target, "targets"),
    el("datalist", {id: "targets"}, targets.map((one) => el("option", {value: one.worker_id}))));
  next = () => plan({kind: "move", job: names.job, virtual_nodes: $("move-nodes").value, target: $("move-target").value});
}

const plan = (asked) => attempt(async () => {
  const planned = await call("data/plan", asked);
  show(`${TITLES[asked.kind]}: the plan`, YES[asked.kind], summary(planned));
  next = () => attempt(async () => {
    await call("data/run", {id: planned.id});
    show(TITLES[asked.kind], "", el("p", null, "It has begun. The page shows how it goes."));
    $("dialog-no").focus();
  });
});

function summary({kind, names, plan: found, drain, handover}) {
  const moves = found?.moves ?? [];
  return [
    el("p", null, Object.values(names).join(", ")),
    kind === "end drain" && el("p", null, `Worker ${drain.worker} gets virtual nodes and copies again. Running handovers go on.`),
    handover && el("p", null, `${handover.plan.intent}, ${words(handover.phase)}, step ${handover.step} of ${handover.steps}. Confirmed steps stay, and a marked step goes on.`),
    drain && kind === "drain" && el("ul", null, drain.blockers.map((one) => el("li", null, one))),
    kind === "drain" && !found && el("p", null, "No virtual node is there. Copies move to other workers."),
    found && el("p", null, `${found.intent}: ${number(found.moves_total)} moves in ${number(found.steps)} steps, ${bytes(found.bytes_to_move)} to copy. `,
      `Predicted: ${seconds(found.prediction.total_s)}, longest pause ${seconds(found.prediction.pause_s)}, from ${found.prediction.basis}.`),
    found && found.hot.map((one) => el("p", null, one)),
    found && table("Moves", ["Virtual node", "Query", "Step", "From", "To", "Kind", "To copy", "Why there"], moves.map((move) => [move.virtual_node, move.query, number(move.step),
      move.origin, move.target, words(move.kind), bytes(move.bytes_to_move), move.why])),
    found && found.moves_total > moves.length && el("p", null, `and ${number(found.moves_total - moves.length)} more`),
  ];
}
