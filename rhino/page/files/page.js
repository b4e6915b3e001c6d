// The page: keeps the newest document, draws it once a frame, and passes on presses of buttons.
import {$, el} from "./dom.js";
import {call, follow, keep, tokenOfAddress} from "./net.js";
import * as actions from "./actions.js";
import * as views from "./views.js";

const {view} = views, root = document.documentElement;
let newest = null, told = 0, waiting = false, state = "begin";

function draw() {
  waiting = false;
  if (!newest) return;
  const began = performance.now();
  $("content").hidden = false;
  views.render(newest);
  document.body.getBoundingClientRect(); // the layout belongs to the measured time
  root.dataset.drawMs = (performance.now() - began).toFixed(1);
  root.dataset.drawn = Number(root.dataset.drawn ?? 0) + 1;
}

function redraw() {
  if (!waiting) requestAnimationFrame(draw);
  waiting = true;
}

function tell(what) {
  state = what;
  $("login").hidden = what !== "login";
  if (what === "login") {
    $("content").hidden = true;
    const wrong = "This token is not valid. Each start of `rhino ui` makes a new one.";
    $("login-why").textContent = sessionStorage.length ? wrong : "";
    $("token").focus();
  }
  age();
}

function age() {
  const ago = Math.round((Date.now() - told) / 1000), live = `live, ${ago < 2 ? "now" : `${ago} s ago`}`;
  const texts = {live, login: "not signed in", lost: "connection lost, trying again", begin: "connecting"};
  $("live").textContent = texts[state];
  $("live").className = state === "live" && ago < 60 ? "good" : "bad";
}

function begin() {
  follow((found) => {
    newest = found;
    told = Date.now();
    redraw();
    age();
  }, tell);
}

async function choose(worker) {
  Object.assign(view, {chosen: worker, nodes: null, wrong: ""});
  redraw();
  if (!worker) return;
  let found;
  try {
    found = {nodes: (await call(`data/worker?id=${encodeURIComponent(worker)}`)).queries};
  } catch (error) {
    found = {wrong: error.message};
  }
  if (view.chosen === worker) Object.assign(view, found);
  redraw();
}

document.addEventListener("click", (event) => {
  const at = (name) => event.target.closest(`[data-${name}]`)?.dataset[name];
  const [worker, key, more, kind] = ["worker", "sort", "more", "act"].map(at);
  if (worker !== undefined) choose(worker);
  if (key) view.sort = {key, down: view.sort.key === key ? !view.sort.down : true};
  if (more) view[more] *= 4;
  if (kind) actions.open(kind, JSON.parse(at("names")), newest);
  if (key || more) redraw();
});
document.addEventListener("mouseover", (event) => { // a title when it is needed, and not a thousand of them
  const cell = event.target.closest("[data-told]");
  if (cell && !cell.querySelector("title")) cell.append(el("title", null, cell.dataset.told));
});
for (const [id, event] of [["measure", "change"], ["find", "input"]])
  $(id).addEventListener(event, () => { view[id] = $(id).value; redraw(); });
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  keep($("token").value);
  $("token").value = "";
  begin();
});
addEventListener("resize", redraw);
addEventListener("hashchange", () => tokenOfAddress() && location.reload());
setInterval(age, 1000);
views.start();
actions.start();
tokenOfAddress();
begin();
