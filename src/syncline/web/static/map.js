// Map: the satellites the node follows, where its newest elements put them, over a coarse outline of the land.

import { get } from "./api.js";
import { LAND } from "./land.js";
import { colour, count, h, pause, replace, s, short, span, table, update, wide } from "./dom.js";

export const title = "Map";
export const twin = () => "api/v1/satellites/";
const WIDTH = 1080, HEIGHT = 540;
const x = (longitude) => ((longitude + 180) / 360) * WIDTH;
const y = (latitude) => ((90 - latitude) / 180) * HEIGHT;
const LABEL = { width: 54, height: 17 };

export async function show(content, _, signal, fine) {
  const tracks = s("g", { class: "tracks" }), dots = s("g", {}), list = h("div"), note = h("p", { class: "dim" });
  const drawing = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "world", role: "img", "aria-label": "world map of the satellites followed" }, ground(), tracks, dots);
  replace(content, h("h1", {}, "Map"), h("div", { class: "grid" }, wide("Satellites followed", drawing, note), wide("List", list)));
  let chosen = null;
  const choose = (number) => { chosen = chosen === number ? null : number; draw(last); };
  const chooseBelow = (number) => { choose(number); drawing.scrollIntoView({ block: "nearest" }); }; // from the list: its path is up there
  content.onkeydown = (event) => { if (event.key === "Escape" && chosen !== null) choose(chosen); };
  let last = { satellites: [], now: 0 };
  function draw({ satellites, too_old }) {
    const one = satellites.find((each) => each.number === chosen);
    update(tracks, one?.track ? pieces(one.track).map((piece) => s("polyline", { points: piece.map(([lon, lat]) => `${x(lon).toFixed(1)},${y(lat).toFixed(1)}`).join(" ") })) : null);
    const labelled = labels(satellites, chosen);
    update(dots, satellites.map((each) => s("g", { class: each.number === chosen ? "sat chosen" : "sat", transform: `translate(${x(each.longitude).toFixed(1)} ${y(each.latitude).toFixed(1)})`, onclick: () => choose(each.number) },
      s("circle", { r: 5, style: `fill:${colour("sds")}` }), labelled.has(each) ? s("text", { y: -9, "text-anchor": anchor(each) }, each.name.slice(0, 24)) : null, s("title", {}, `${each.name}: ${each.altitude.toFixed(0)} km`))));
    note.textContent = one ? `${one.name}: ${one.altitude.toFixed(0)} km high, once around in ${one.period_minutes.toFixed(1)} min. ${one.track ? "The line is its path over the next revolution." : "Paths are given for the satellites heard of last, and this is none of them."}`
      : satellites.length ? `${count(satellites.length)} satellites with fresh elements${too_old ? `, ${count(too_old)} with elements too old to propagate` : ""}. Choose one for its path over the next revolution.` : `No orbit mean-elements (OMM) ${too_old ? "that are fresh enough to propagate" : ""} have been accepted yet.`.replace("  ", " ");
    update(list, listed(last, chosen, chooseBelow));
  }
  while (!signal.aborted) {
    last = await get("api/v1/satellites/", { signal });
    fine();
    draw(last);
    await pause(1000);
  }
}

function listed({ satellites, now }, chosen, choose) {
  const columns = [{ name: "satellite" }, { name: "number", kind: "number hide-narrow" }, { name: "latitude", kind: "number" }, { name: "longitude", kind: "number" }, { name: "height, km", kind: "number" }, { name: "elements from" }, { name: "published by" }];
  return table(columns, satellites.map((each) => [h("button", { type: "button", class: "link", "aria-pressed": String(each.number === chosen), onclick: () => choose(each.number) }, each.name), each.number, each.latitude.toFixed(2), each.longitude.toFixed(2), each.altitude.toFixed(0), h("a", { href: `#/records/${encodeURIComponent(each.record.epoch)}/${each.record.lsn}` }, `${span(Math.max(0, now - each.epoch) / 1e6)} ago`), h("span", { title: each.publisher }, short(each.publisher))]), "none yet", "satellites");
}

// A name is written where no other is yet; the rest have it in their tooltip. At the edge it leans inwards.
function labels(satellites, chosen) {
  const shown = new Map();
  for (const each of [...satellites].sort((a, b) => (b.number === chosen) - (a.number === chosen))) {
    const at = { x: x(each.longitude), y: y(each.latitude) };
    if ([...shown.values()].every((other) => Math.abs(other.x - at.x) > LABEL.width || Math.abs(other.y - at.y) > LABEL.height)) shown.set(each, at);
  }
  return shown;
}

const anchor = ({ longitude }) => (x(longitude) < LABEL.width / 2 ? "start" : x(longitude) > WIDTH - LABEL.width / 2 ? "end" : "middle");

function ground() {
  const lines = [];
  for (let lon = -150; lon <= 150; lon += 30) lines.push(s("line", { x1: x(lon), x2: x(lon), y1: 0, y2: HEIGHT }));
  for (let lat = -60; lat <= 60; lat += 30) lines.push(s("line", { x1: 0, x2: WIDTH, y1: y(lat), y2: y(lat), class: lat === 0 ? "equator" : null }));
  return [s("rect", { width: WIDTH, height: HEIGHT, class: "sea" }), s("g", { class: "land" }, LAND.map((outline) => s("polygon", { points: outline.map(([lon, lat]) => `${x(lon)},${y(lat)}`).join(" ") }))), s("g", { class: "grid-lines" }, lines)];
}

// A path that crosses the edge of the map goes on at the other side.
function pieces(track) {
  const found = [[]];
  track.forEach((point, i) => {
    if (i && Math.abs(point[0] - track[i - 1][0]) > 180) found.push([]);
    found.at(-1).push(point);
  });
  return found;
}
