// Objects: the SDSP objects a node holds, and one of them at any serial.

import { get } from "./api.js";
import { card, count, facts, h, json, replace, table, wide } from "./dom.js";

export const title = "Objects";
export const twin = ([uid]) => (uid ? `sdsp/${encodeURIComponent(uid)}` : "sdsp/");

export async function show(content, [uid], signal, fine) {
  return uid ? one(content, uid, signal, fine) : list(content, signal, fine);
}

async function list(content, signal, fine) {
  const place = h("div");
  replace(content, h("h1", {}, "Objects"), h("div", { class: "grid" }, wide("Followed through SDSP", place)));
  while (!signal.aborted) {
    const { objects } = await get("sdsp/", { signal });
    fine();
    replace(place, table([{ name: "object" }, { name: "topic" }, { name: "serial", kind: "number" }, { name: "kind" }, { name: "state" }],
      objects.map((each) => [h("a", { href: `#/objects/${encodeURIComponent(each.uid)}`, class: "mono" }, each.uid), each.topic, count(each.serial), each.kind, each.status]), "no object has been published to this node yet"));
    await new Promise((wake) => setTimeout(wake, 2000));
  }
}

async function one(content, uid, signal, fine) {
  const path = `sdsp/${encodeURIComponent(uid)}`;
  let state = await get(path, { signal });
  const first = Math.max(0, state.oldest ?? 0);
  const slider = h("input", { type: "range", min: first, max: state.serial, value: state.serial, "aria-label": "serial", oninput: () => { live = Number(slider.value) >= Number(slider.max); draw(Number(slider.value)); } });
  const label = h("p", { class: "dim", "aria-live": "polite" }), value = h("div"), about = h("div");
  let live = true, drawn = 0;
  replace(content, h("h1", { class: "mono" }, uid), h("div", { class: "grid" }, wide("Through time", slider, label), card("Object", value), card("State", about)));
  async function draw(serial) {
    const turn = (drawn += 1);
    try {
      const then = await get(`${path}?at=${serial}`, { signal });
      if (turn !== drawn) return; // the slider has moved on
      label.textContent = `serial ${count(then.serial)} of ${count(Number(slider.max))}${live ? ", following" : ""}`;
      replace(value, json(then.value));
      replace(about, facts({ serial: count(then.serial), version: count(then.ver), kind: then.kind, state: then.status }));
    } catch (error) {
      if (error.name !== "AbortError") label.textContent = `serial ${serial}: ${error.message}`;
    }
  }
  await draw(state.serial);
  while (!signal.aborted) {
    state = await get(`${path}?after=${state.serial}&wait=20`, { signal });
    fine();
    slider.max = state.serial;
    if (live) { slider.value = state.serial; await draw(state.serial); }
    await new Promise((wake) => setTimeout(wake, 200));
  }
}
