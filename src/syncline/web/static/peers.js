// Peers: who each protocol talks to, drawn and listed.

import { get } from "./api.js";
import { topology } from "./charts.js";
import { count, h, pause, redraw, replace, short, table, tag, wide } from "./dom.js";

export const title = "Peers";
export const twin = () => "api/v1/peers";

export async function show(content, _, signal, fine) {
  const drawing = h("div"), list = h("div");
  replace(content, h("h1", {}, "Peers"), h("div", { class: "grid" }, wide("Connections", drawing, h("p", { class: "dim" }, "● peer  ■ server  ●●● clients. Hold the pointer over one for its full name.")), wide("List", list)));
  while (!signal.aborted) {
    const [status, { peers }] = await Promise.all([get("api/v1/status", { signal }), get("api/v1/peers", { signal })]);
    fine();
    const others = peers.filter((peer) => !String(peer.peer).startsWith("internal:")); // a forwarder's face to our own group
    replace(drawing, topology(status.node, others, clients(status.statistics.protocols), drawing.clientWidth));
    const columns = [...new Set(peers.flatMap(Object.keys))].filter((name) => !["protocol", "peer", "topics", "protocols"].includes(name));
    redraw(list, table([{ name: "protocol" }, { name: "peer" }, ...columns.map((name) => ({ name: name.replaceAll("_", " ") }))], peers.map((peer) => [tag(peer.protocol), h("span", { class: "mono", title: peer.peer }, short(peer.peer)), ...columns.map((name) => text(peer[name]))]), "no peers yet: name some in libp2p.bootstrap, relay.peers or svs.uplinks", "peers"));
    await pause(2000);
  }
}

// Who only listens is no peer, but part of the picture.
const clients = (protocols) => ({ relay: protocols.relay?.connections ?? 0, sdsp: protocols.sdsp?.followers ?? 0 });

function text(value) {
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" && !Number.isInteger(value) ? count(Math.round(value * 10) / 10) : count(value);
}
