// Small SVG charts: stacked throughput over time, and bars.

import { colour, h, s } from "./dom.js";

const HEIGHT = 180, LEFT = 44, BOTTOM = 20, TOP = 8;

// samples: [{ at: seconds, rates: { protocol: number } }], oldest first
export function throughput(samples, width, unit = "messages/s") {
  const WIDTH = Math.max(280, Math.round(width));
  const protocols = [...new Set(samples.flatMap((each) => Object.keys(each.rates)))].sort();
  const top = Math.max(1, ...samples.map((each) => Object.values(each.rates).reduce((a, b) => a + b, 0))) * 1.15;
  const span = Math.max(1, samples.length - 1);
  const x = (i) => LEFT + (i / span) * (WIDTH - LEFT - 4);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const below = samples.map(() => 0);
  const areas = protocols.map((protocol) => {
    const lower = samples.map((_, i) => `${x(i).toFixed(1)},${y(below[i]).toFixed(1)}`);
    const upper = samples.map((each, i) => { below[i] += each.rates[protocol] || 0; return `${x(i).toFixed(1)},${y(below[i]).toFixed(1)}`; });
    return s("polygon", { points: [...upper, ...lower.reverse()].join(" "), style: `fill:${colour(protocol)};opacity:.75` }, s("title", {}, protocol));
  });
  const ticks = [0, top / 2, top].map((value) => [
    s("line", { x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value), style: "stroke:var(--line)" }),
    s("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value < 10 ? value.toFixed(1) : Math.round(value)),
  ]);
  const label = samples.length ? `last ${Math.round(samples.at(-1).at - samples[0].at)} s` : "";
  const last = samples.at(-1)?.rates ?? {};
  return [
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": `throughput, ${unit}` }, ticks, areas, s("text", { x: WIDTH - 4, y: HEIGHT - 5, "text-anchor": "end" }, `${label}, ${unit}`)),
    h("div", { class: "legend" }, protocols.map((protocol) => h("span", {}, h("i", { style: `background:${colour(protocol)}` }), `${protocol} ${(last[protocol] || 0).toFixed(1)}`))),
  ];
}

export function bar(value, largest, kind) {
  return h("div", { class: `bar ${kind}`, style: `width:${Math.max(1, (100 * value) / Math.max(1, largest)).toFixed(1)}%` });
}

// A ring of peers around the node; lines are connections, coloured by protocol.
export function topology(node, peers) {
  const shown = peers.slice(0, 60);
  const radius = 130, cx = 320, cy = 160;
  const spots = shown.map((peer, i) => {
    const angle = (2 * Math.PI * i) / Math.max(1, shown.length) - Math.PI / 2;
    return { peer, x: cx + radius * 1.7 * Math.cos(angle), y: cy + radius * Math.sin(angle) };
  });
  return s("svg", { viewBox: "0 0 640 320", role: "img", "aria-label": `${peers.length} peers` },
    spots.map(({ peer, x, y }) => s("line", { x1: cx, y1: cy, x2: x, y2: y, style: `stroke:${colour(peer.protocol)};opacity:.6` })),
    spots.map(({ peer, x, y }) => s("g", {}, s("circle", { cx: x, cy: y, r: 7, style: `fill:${colour(peer.protocol)}` }, s("title", {}, `${peer.protocol}: ${peer.peer}`)), s("text", { x, y: y + 20, "text-anchor": "middle" }, short(peer.peer)))),
    s("circle", { cx, cy, r: 13, style: "fill:var(--ink)" }), s("text", { x: cx, y: cy + 30, "text-anchor": "middle" }, short(node)));
}

export const short = (name) => (name && name.length > 14 ? `${name.slice(0, 4)}…${name.slice(-6)}` : name ?? "");
