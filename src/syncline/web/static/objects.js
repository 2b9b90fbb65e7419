// Objects: the SDSP objects a node holds, and one of them at any serial, with what that serial changed.

import { get, Problem, records } from "./api.js";
import { card, count, facts, h, json, pause, replace, size, table, time, update, wide } from "./dom.js";

export const title = "Objects";
export const twin = ([uid]) => (uid ? `sdsp/${encodeURIComponent(uid)}` : "sdsp/");

export async function show(content, [uid], signal, fine) {
  return uid ? one(content, uid, signal, fine) : list(content, signal, fine);
}

async function list(content, signal, fine) {
  const place = h("div");
  replace(content, h("h1", {}, "Objects"), h("div", { class: "grid" }, wide("Held through SDSP", place)));
  while (!signal.aborted) {
    const { objects } = await get("sdsp/", { signal }).catch((error) => { throw error.status === 404 ? new Problem("This node does not speak SDSP: see the setting node.protocols.") : error; });
    fine();
    update(place, table([{ name: "object" }, { name: "topic" }, { name: "serial", kind: "number" }, { name: "kind" }, { name: "state" }],
      objects.map((each) => [h("a", { href: `#/objects/${encodeURIComponent(each.uid)}`, class: "mono" }, each.uid), each.topic, count(each.serial), each.kind, each.status]), "no object has been published to this node yet", "objects"));
    await pause(2000);
  }
}

async function one(content, uid, signal, fine) {
  const path = `sdsp/${encodeURIComponent(uid)}`;
  replace(content, h("h1", { class: "mono" }, uid), h("p", { class: "links" }, h("a", { href: "#/objects" }, "all objects")));
  if (uid === "." || uid === "..") throw new Problem(`A browser cannot ask for an object of this name; \`syncline sdsp cat ${uid}\` can`); // it takes dots for folders
  let state = await get(path, { signal });
  fine();
  const label = h("p", { class: "dim", "aria-live": "polite" }), value = h("div"), about = h("div"), changed = h("div");
  let live = true, drawn = 0;
  const go = (serial) => {
    slider.value = serial;
    live = Number(slider.value) >= Number(slider.max);
    follow.setAttribute("aria-pressed", live);
    draw(Number(slider.value));
  };
  const slider = h("input", { type: "range", min: Math.max(0, state.oldest ?? 0), max: state.serial, value: state.serial, "aria-label": "serial", oninput: () => go(Number(slider.value)) });
  const step = (by, word) => h("button", { type: "button", onclick: () => go(Number(slider.value) + by) }, word);
  const follow = h("button", { type: "button", "aria-pressed": "true", onclick: () => go(slider.max) }, "Follow");
  content.append(h("div", { class: "grid" }, wide("Through time", slider, h("div", { class: "under" }, step(-1, "← earlier"), step(1, "later →"), follow, label)), card("Object", value), h("div", { class: "column" }, card("What this serial changed", changed), card("State", about))));
  async function draw(serial) {
    const turn = (drawn += 1);
    try {
      const [then, frames, kept] = await Promise.all([get(`${path}?at=${serial}`, { signal }), get(`${path}/frames?first=${serial}&last=${serial}`, { signal }), recordOf(uid, serial, signal)]);
      if (turn !== drawn) return; // the slider has moved on
      const when = kept ? time(kept.received_at) : "";
      label.textContent = `serial ${count(then.serial)} of ${count(Number(slider.max))}${when && `, ${when}`}${live ? ", following" : ""}`;
      slider.setAttribute("aria-valuetext", label.textContent);
      update(value, then.kind === "text" ? h("pre", { tabindex: "0" }, then.value) : json(then.value));
      update(changed, change(frames[0]));
      update(about, facts({ kept: kept ? h("a", { href: `#/records/${encodeURIComponent(kept.epoch)}/${kept.lsn}` }, kept.received_at.replace("T", " ").slice(0, 23)) : "no longer in the journal", serial: count(then.serial), "deltas since the whole object": count(then.ver), topic: then.topic, kind: then.kind, state: then.status }));
    } catch (error) {
      if (error.name !== "AbortError" && turn === drawn) label.textContent = `serial ${serial}: ${error.message}`;
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

// The record a serial came in: when, and its bytes. The journal forgets before the object does.
async function recordOf(uid, serial, signal) {
  const found = await records({ protocol: "sdsp", key: uid, seq: serial, verdict: "accept", last: 1 }, signal);
  return found.records[0] ?? null;
}

function change(frame) {
  if (!frame) return h("p", { class: "empty" }, "the frame is no longer kept");
  const bytes = size(new TextEncoder().encode(JSON.stringify(frame)).length);
  if (frame.delta === undefined) return h("p", {}, frame.frozen ? "It was frozen." : `The whole object was sent, ${bytes}.`);
  const steps = Array.isArray(frame.delta) ? frame.delta : [frame.delta];
  const lines = steps.slice(0, 12).map((step) => h("span", { class: "change mono" }, typeof step === "object" ? `${step.op} ${step.path}${"value" in step ? ` = ${JSON.stringify(step.value)}` : ""}` : String(step)));
  return [h("p", { class: "dim" }, `a delta (${frame.alg}) of ${bytes}`), lines, steps.length > 12 ? h("span", { class: "dim" }, `… ${count(steps.length - 12)} more steps`) : null];
}
