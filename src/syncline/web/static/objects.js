// Objects: the SDSP objects a node holds, and one of them at any serial, with what that serial changed.

import { get } from "./api.js";
import { card, count, facts, h, json, pause, redraw, replace, size, table, wide } from "./dom.js";

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
    redraw(place, table([{ name: "object" }, { name: "topic" }, { name: "serial", kind: "number" }, { name: "kind" }, { name: "state" }],
      objects.map((each) => [h("a", { href: `#/objects/${encodeURIComponent(each.uid)}`, class: "mono" }, each.uid), each.topic, count(each.serial), each.kind, each.status]), "no object has been published to this node yet", "objects"));
    await pause(2000);
  }
}

async function one(content, uid, signal, fine) {
  const path = `sdsp/${encodeURIComponent(uid)}`;
  let state = await get(path, { signal });
  const first = Math.max(0, state.oldest ?? 0);
  const slider = h("input", { type: "range", min: first, max: state.serial, value: state.serial, "aria-label": "serial", oninput: () => { live = Number(slider.value) >= Number(slider.max); draw(Number(slider.value)); } });
  const label = h("p", { class: "dim", "aria-live": "polite" }), value = h("div"), about = h("div"), changed = h("div");
  let live = true, drawn = 0;
  replace(content, h("h1", { class: "mono" }, uid), h("p", { class: "links" }, h("a", { href: "#/objects" }, "all objects")), h("div", { class: "grid" }, wide("Through time", slider, label), card("Object", value), h("div", { class: "column" }, card("What this serial changed", changed), card("State", about))));
  async function draw(serial) {
    const turn = (drawn += 1);
    try {
      const [then, frames] = await Promise.all([get(`${path}?at=${serial}`, { signal }), get(`${path}/frames?first=${serial}&last=${serial}`, { signal })]);
      if (turn !== drawn) return; // the slider has moved on
      label.textContent = `serial ${count(then.serial)} of ${count(Number(slider.max))}${live ? ", following" : ""}`;
      const old = value.firstElementChild?.scrollTop ?? 0;
      replace(value, json(then.value));
      value.firstElementChild.scrollTop = old;
      replace(changed, change(frames[0]));
      replace(about, facts({ serial: count(then.serial), "deltas since the whole object": count(then.ver), topic: then.topic, kind: then.kind, state: then.status }));
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
    await pause(300);
  }
}

function change(frame) {
  if (!frame) return h("p", { class: "empty" }, "the frame is no longer kept");
  const bytes = size(new TextEncoder().encode(JSON.stringify(frame)).length);
  if (frame.delta === undefined) return h("p", {}, frame.frozen ? "It was frozen." : `The whole object was sent, ${bytes}.`);
  const steps = Array.isArray(frame.delta) ? frame.delta : [frame.delta];
  const lines = steps.slice(0, 12).map((step) => h("span", { class: "change mono" }, typeof step === "object" ? `${step.op} ${step.path}${"value" in step ? ` = ${JSON.stringify(step.value)}` : ""}` : String(step)));
  return [h("p", { class: "dim" }, `a delta (${frame.alg}) of ${bytes}`), lines, steps.length > 12 ? h("span", { class: "dim" }, `… ${count(steps.length - 12)} more steps`) : null];
}
