// The token, calls with it, and the stream of documents. An EventSource could not send the token in a header.
const KEY = "rhino-token";

// The address of `rhino ui` has the token as its fragment. It leaves the address bar at once.
export function tokenOfAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return false;
  keep(found);
  history.replaceState(null, "", location.pathname);
  return true;
}

export const keep = (token) => sessionStorage.setItem(KEY, token.trim());

function ask(path, more = {}) {
  const headers = {Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, ...more.headers};
  return fetch(path, {...more, headers, cache: "no-store"});
}

// The answer as an object. Throws an Error with the reason.
export async function call(path, body) {
  const post = {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)};
  const answer = await ask(path, body ? post : {});
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error?.message ?? answer.statusText);
  return content;
}

// Calls `draw` with each document, and `tell` with "live", "lost" or "login". Ends with "login".
export async function follow(draw, tell) {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
    try {
      const answer = await ask("data/live");
      if (answer.status === 401) return tell("login");
      if (!answer.ok) throw new Error(answer.statusText);
      tell("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ; ) {
        const {value, done} = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        if (events.length) draw(JSON.parse(events.at(-1).slice("data: ".length)));
        wait = 500;
      }
    } catch (error) {
      console.warn(error);
    }
    tell("lost");
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
