// Talks to the node. A token, where the node wants one, lives in this tab only.

const TOKEN = "syncline.token";

export class Problem extends Error {}

export async function get(path, { text = false, signal } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { headers, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The node does not answer. Is it running?");
  }
  if (answer.status === 401) {
    const given = prompt("This node asks for its API token");
    if (!given) throw new Problem("This node asks for its API token (setting api.token).");
    sessionStorage.setItem(TOKEN, given);
    return get(path, { text, signal });
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Problem(body.error ? [body.error.message, body.error.hint].filter(Boolean).join("; ") : `the node answered ${answer.status}`);
  }
  return text ? { text: await answer.text(), headers: answer.headers } : answer.json();
}

export async function records(parameters, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const { text, headers } = await get(`api/v1/records?${new URLSearchParams(given)}`, { text: true, signal });
  const lines = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return { records: lines, next: headers.get("syncline-next"), epoch: headers.get("syncline-epoch") };
}
