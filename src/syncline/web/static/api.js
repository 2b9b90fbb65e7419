// Talks to the node. A token, where the node wants one, lives in this tab only.

const TOKEN = "syncline.token";
let asked = null;

export class Problem extends Error {
  constructor(message, status = 0) { super(message); this.status = status; }
}
export class Silence extends Problem {} // nobody answered at all

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export async function get(path, { text = false, signal } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { headers, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Silence("The node does not answer. Is it running?");
  }
  if (answer.status === 401) {
    await askForToken(Boolean(token));
    signal?.throwIfAborted();
    return get(path, { text, signal });
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Problem(body.error ? [body.error.message, body.error.hint].filter(Boolean).join("; ") : `The node answered ${answer.status}.`, answer.status);
  }
  return text ? { text: await answer.text(), headers: answer.headers } : answer.json();
}

// One question for the whole page, however many requests wait for the answer.
function askForToken(refused) {
  asked ??= new Promise((given) => {
    const dialog = document.getElementById("token");
    dialog.querySelector("p").textContent = refused ? "The node refused that token." : "This node asks for its API token (setting api.token).";
    dialog.querySelector("form").onsubmit = () => {
      sessionStorage.setItem(TOKEN, dialog.querySelector("input").value.trim());
      asked = null;
      given();
    };
    dialog.onclose = () => { if (asked) dialog.showModal(); }; // Escape: nothing can be shown without it
    dialog.querySelector("input").value = "";
    if (!dialog.open) dialog.showModal();
  });
  return asked;
}

export async function records(parameters, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const { text, headers } = await get(`api/v1/records?${new URLSearchParams(given)}`, { text: true, signal });
  const lines = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return { records: lines, next: headers.get("syncline-next"), epoch: headers.get("syncline-epoch") };
}
