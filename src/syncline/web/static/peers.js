// Peers: who each protocol talks to, drawn and listed.

import { get } from "./api.js";
import { topology } from "./charts.js";
import { count, h, pause, replace, short, span, table, tag, update, wide } from "./dom.js";

export const title = "Peers";
export const twin = () => "api/v1/peers";
const NOT_SHOWN = ["protocol", "peer", "name", "topics", "protocols"];

export async function show(content, _, signal, fine) {
  const drawing = h("div"), lists = h("div", { class: "lists" });
  replace(content, h("h1", {}, "Peers"), h("div", { class: "grid" }, wide("Connections", drawing, h("p", { class: "dim" }, "● peer  ■ server  ●●● clients. Hold the pointer over one for its full name.")), wide("By protocol", lists)));
  while (!signal.aborted) {
    const [status, { peers }] = await Promise.all([get("api/v1/status", { signal }), get("api/v1/peers", { signal })]);
    fine();
    const names = Object.fromEntries(peers.filter((peer) => peer.name).map((peer) => [peer.peer, peer.name])); // one that says its name on one network is the same on the others
    const named = peers.map((peer) => ({ ...peer, name: names[peer.peer] ?? "" }));
    const others = named.filter((peer) => !String(peer.peer).startsWith("internal:")); // a forwarder's face to our own group
    update(drawing, topology(status.name || short(status.node), others, clients(status.statistics.protocols), drawing.clientWidth));
    update(lists, named.length ? status.protocols.map((protocol) => list(protocol, named.filter((peer) => peer.protocol === protocol))) : h("p", { class: "empty" }, "No peers yet: name some in libp2p.bootstrap, relay.peers or svs.uplinks."));
    await pause(2000);
  }
}

// Each protocol knows other things of its peers, so each has columns of its own.
function list(protocol, peers) {
  if (!peers.length) return null;
  const names = [...new Set(peers.flatMap(Object.keys))].filter((name) => !NOT_SHOWN.includes(name));
  const columns = names.map((name) => ({ name: name.replaceAll("_", " "), kind: peers.every((peer) => typeof (peer[name] ?? 0) === "number") ? "number" : "" }));
  const known = peers.some((peer) => peer.name); // few protocols tell names
  const rows = peers.map((peer) => [h("span", { class: "mono", title: peer.peer }, short(peer.peer)), ...(known ? [peer.name] : []), ...names.map((name) => text(peer[name], name))]);
  return h("div", {}, h("h3", {}, tag(protocol)), table([{ name: "peer" }, ...(known ? [{ name: "name" }] : []), ...columns], rows, "", `${protocol} peers`));
}

// Who only listens is no peer, but part of the picture.
const clients = (protocols) => ({ relay: protocols.relay?.connections ?? 0, sdsp: protocols.sdsp?.followers ?? 0 });

function text(value, name) {
  if (name === "since" && typeof value === "number") return span(value);
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" && !Number.isInteger(value) ? count(Math.round(value * 10) / 10) : count(value);
}
