// Peers: who each protocol talks to, drawn and listed.

import { get } from "./api.js";
import { short, topology } from "./charts.js";
import { card, colour, count, h, replace, table, wide } from "./dom.js";

export const title = "Peers";
export const twin = () => "api/v1/peers";

export async function show(content, _, signal, fine) {
  const drawing = h("div"), list = h("div");
  replace(content, h("h1", {}, "Peers"), h("div", { class: "grid" }, wide("Connections", drawing), wide("List", list)));
  const { node } = await get("api/v1/status", { signal });
  while (!signal.aborted) {
    const { peers } = await get("api/v1/peers", { signal });
    fine();
    const columns = [...new Set(peers.flatMap(Object.keys))].filter((name) => name !== "protocol" && name !== "peer");
    replace(drawing, peers.length ? topology(node, peers) : h("p", { class: "empty" }, "no peers yet"));
    replace(list, table([{ name: "protocol" }, { name: "peer" }, ...columns.map((name) => ({ name }))], peers.map((peer) => [h("span", { style: `color:${colour(peer.protocol)}` }, peer.protocol), h("span", { class: "mono", title: peer.peer }, short(peer.peer)), ...columns.map((name) => text(peer[name]))]), "no peers yet"));
    await new Promise((wake) => setTimeout(wake, 2000));
  }
}

const text = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : count(value));
