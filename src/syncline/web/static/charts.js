// Small SVG charts: stacked throughput over time, bars, and who is connected to whom.

import { colour, h, s, short } from "./dom.js";

const HEIGHT = 200, LEFT = 40, BOTTOM = 20, TOP = 10;

// samples: [{ at: seconds, rates: { protocol: number } }], oldest first
export function throughput(samples, width, unit = "messages/s") {
  const WIDTH = Math.max(280, Math.round(width));
  const protocols = [...new Set(samples.flatMap((each) => Object.keys(each.rates)))].sort();
  const top = nice(Math.max(1, ...samples.map((each) => Object.values(each.rates).reduce((a, b) => a + b, 0))));
  const first = samples[0]?.at ?? 0, seconds = Math.max(1, (samples.at(-1)?.at ?? 1) - first);
  const x = (i) => LEFT + ((samples[i].at - first) / seconds) * (WIDTH - LEFT - 4);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const below = samples.map(() => 0);
  const areas = protocols.map((protocol) => {
    const lower = samples.map((_, i) => `${x(i).toFixed(1)},${y(below[i]).toFixed(1)}`);
    const upper = samples.map((each, i) => { below[i] += each.rates[protocol] || 0; return `${x(i).toFixed(1)},${y(below[i]).toFixed(1)}`; });
    return s("polygon", { points: [...upper, ...lower.reverse()].join(" "), style: `fill:${colour(protocol)};opacity:.8` }, s("title", {}, protocol));
  });
  const ticks = [0, top / 2, top].map((value) => [
    s("line", { x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value), style: "stroke:var(--line)" }),
    s("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, Number.isInteger(value) ? value : value.toFixed(1)),
  ]);
  if (samples.length < 2) return h("p", { class: "empty" }, "measuring…");
  const last = average(samples.slice(-5));
  const total = Object.values(last).reduce((sum, rate) => sum + rate, 0);
  return [
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": `throughput, ${unit}` }, ticks, areas, s("text", { x: LEFT, y: HEIGHT - 5 }, `${Math.round(seconds)} s ago`), s("text", { x: WIDTH - 4, y: HEIGHT - 5, "text-anchor": "end" }, "now")),
    h("div", { class: "legend" }, protocols.map((protocol) => h("span", {}, h("i", { style: `background:${colour(protocol)}` }), `${protocol} `, h("b", {}, (last[protocol] || 0).toFixed(1)))), h("span", { class: "sum" }, "together ", h("b", {}, total.toFixed(1)))),
  ];
}

function average(samples) {
  const sums = {};
  for (const { rates } of samples) for (const [name, rate] of Object.entries(rates)) sums[name] = (sums[name] || 0) + rate / samples.length;
  return sums;
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}

export function bar(value, largest, kind) {
  return h("div", { class: `bar ${kind}`, style: `width:${Math.max(1, (100 * value) / Math.max(1, largest)).toFixed(1)}%` });
}

// A line over time, without axes: whether something grows or stays.
export function spark(values, label) {
  const top = Math.max(1, ...values), width = 240, height = 36;
  const points = values.map((value, i) => `${((i / Math.max(1, values.length - 1)) * width).toFixed(1)},${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  return s("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", preserveAspectRatio: "none", role: "img", "aria-label": label }, s("polyline", { points: points.join(" ") }));
}

// The node in the middle, one bough per protocol, its peers at the ends. `name` is the node's own.
export function topology(name, peers, clients, width) {
  const groups = Object.entries(Object.groupBy ? Object.groupBy(peers, (peer) => peer.protocol) : grouped(peers)).map(([protocol, members]) => ({ protocol, members: members.slice(0, 12), more: Math.max(0, members.length - 12) }));
  for (const [protocol, number] of Object.entries(clients)) if (number) {
    const group = groups.find((each) => each.protocol === protocol);
    const folk = { peer: `${number} client${number > 1 ? "s" : ""}`, kind: "clients", protocol };
    if (group) group.members.push(folk); else groups.push({ protocol, members: [folk], more: 0 });
  }
  const leaves = groups.reduce((sum, group) => sum + group.members.length, 0) + groups.length;
  const narrow = width < 560; // on a phone the picture is a circle, and its text stays readable
  const [W, H, rx, ry, near] = narrow ? [420, 440, 160, 180, 0.5] : [800, 400, 300, 150, 0.45];
  const cx = W / 2, cy = H / 2, clamp = (x) => Math.min(W - 56, Math.max(56, x));
  let at = 0;
  const drawn = groups.map((group) => {
    const spots = group.members.map((peer) => { const angle = (2 * Math.PI * at++) / leaves - Math.PI / 2; return { peer, angle, x: cx + rx * Math.cos(angle), y: cy + ry * Math.sin(angle) }; });
    at += 1;
    const middle = spots.reduce((sum, spot) => sum + spot.angle, 0) / spots.length;
    const hub = { x: cx + rx * near * Math.cos(middle), y: cy + ry * near * Math.sin(middle) };
    const style = `stroke:${colour(group.protocol)}`;
    return s("g", {},
      s("line", { x1: cx, y1: cy, x2: hub.x, y2: hub.y, style, "stroke-width": 2.5 }),
      spots.map(({ x, y }) => s("line", { x1: hub.x, y1: hub.y, x2: x, y2: y, style, opacity: 0.65 })),
      spots.map(({ peer, x, y }) => s("g", {}, mark(peer, x, y, group.protocol), s("text", { x: clamp(x), y: y + (y > cy ? 22 : -14), "text-anchor": "middle" }, peer.name || end(peer)))),
      s("rect", { x: hub.x - 24, y: hub.y - 11, width: 48, height: 22, rx: 11, style: `fill:var(--card);${style}` }),
      s("text", { x: hub.x, y: hub.y + 4, "text-anchor": "middle", class: "strong" }, group.protocol + (group.more ? ` +${group.more}` : "")));
  });
  return s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `this node and ${peers.length} peers` }, drawn,
    s("circle", { cx, cy, r: 16, style: "fill:var(--ink)" }), s("text", { x: cx, y: cy + 34, "text-anchor": "middle", class: "strong halo" }, name));
}

// Keys all begin alike, so the end is what tells them apart.
const end = ({ peer, kind }) => (kind === "clients" ? peer : /^\w{40,}$/.test(peer) ? `…${peer.slice(-6)}` : short(peer));

function mark(peer, x, y, protocol) {
  const style = `fill:${colour(protocol)}`, about = s("title", {}, [peer.kind ?? protocol, peer.name, peer.peer].filter(Boolean).join(": "));
  if (peer.kind === "server") return s("rect", { x: x - 8, y: y - 8, width: 16, height: 16, rx: 3, style }, about);
  if (peer.kind === "clients") return s("g", { style }, about, [-9, 0, 9].map((shift) => s("circle", { cx: x + shift, cy: y, r: 5 })));
  return s("circle", { cx: x, cy: y, r: 8, style }, about);
}

function grouped(peers) {
  const groups = {};
  for (const peer of peers) (groups[peer.protocol] ??= []).push(peer);
  return groups;
}
