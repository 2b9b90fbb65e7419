// Records: the live stream with filters, and one record's bytes, meaning and verdict.

import { get, records as fetchRecords } from "./api.js";
import { card, count, facts, h, pause, PROTOCOLS, replace, short, tag, time, wide } from "./dom.js";
import { hex, linked } from "./bytes.js";

export const title = "Records";
export const twin = ([epoch, lsn]) => (lsn ? `api/v1/records/${encodeURIComponent(epoch)}/${lsn}` : `api/v1/records${epoch ? `${epoch}&` : "?"}last=100`);
const SHOWN = 200;
const FILTERS = ["protocol", "verdict", "reason", "kind", "topic", "key", "publisher"];
const HEAD = [["time"], ["protocol"], ["", "received or sent"], ["verdict"], ["reason"], ["topic"], ["key", "what it is about"], ["seq", "serial, sequence number or height"], ["bytes"], ["peer", "who handed it over"]];

export async function show(content, [epoch, lsn], signal, fine) {
  if (lsn) return one(content, epoch, lsn, signal, fine);
  return stream(content, epoch ?? "", signal, fine);
}

async function stream(content, given, signal, fine) {
  const wanted = new URLSearchParams(given.replace(/^\?/, ""));
  const { reasons } = await get("api/v1/reasons", { signal });
  const choices = { protocol: PROTOCOLS, verdict: ["accept", "reject", "ignore"], reason: reasons.map((each) => each.reason) };
  let paused = false;
  const go = (event) => {
    event?.preventDefault();
    const chosen = [...new FormData(form)].filter(([, value]) => value);
    location.hash = chosen.length ? `#/records/?${new URLSearchParams(chosen)}` : "#/records";
  };
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; hold.setAttribute("aria-pressed", paused); hold.textContent = paused ? "Go on" : "Pause"; } }, "Pause");
  const form = h("form", { class: "filters", onsubmit: go }, FILTERS.map((name) => h("label", {}, name, field(name, wanted.get(name) ?? "", choices[name], go))), h("button", {}, "Filter"), hold, given ? h("a", { href: "#/records" }, "Show all") : null);
  const body = h("tbody");
  const head = HEAD.map(([name, about]) => h("th", { scope: "col", title: about, "aria-label": name ? null : about, class: name === "bytes" ? "number" : null }, name));
  const empty = h("p", { class: "empty" }, "no record matches yet; waiting…");
  replace(content, h("h1", {}, "Records"), form, h("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "records" }, h("table", { class: "stream" }, h("thead", {}, h("tr", {}, head)), body), empty));
  const filters = Object.fromEntries([...wanted].filter(([name]) => FILTERS.includes(name)));
  let page = await fetchRecords({ ...filters, last: 50 }, signal);
  while (!signal.aborted) {
    fine();
    if (page.records.length) empty.remove();
    for (const record of page.records) body.prepend(row(record));
    while (body.childElementCount > SHOWN) body.lastElementChild.remove();
    while (paused && !signal.aborted) await pause(200);
    page = await fetchRecords({ ...filters, after: page.next, epoch: page.epoch, wait: 25, limit: SHOWN }, signal);
    await pause(250);
  }
}

function field(name, value, choices, changed) {
  if (!choices) return h("input", { name, value, size: name === "kind" ? 6 : 9, autocomplete: "off", spellcheck: "false" });
  return h("select", { name, onchange: changed }, ["", ...choices].map((each) => h("option", { value: each, selected: each === value }, each || "all")));
}

function row(record) {
  const link = h("a", { href: `#/records/${encodeURIComponent(record.epoch)}/${record.lsn}` }, time(record.received_at));
  const bytes = record.raw ? Math.floor((record.raw.length * 3) / 4) - (record.raw.endsWith("==") ? 2 : record.raw.endsWith("=") ? 1 : 0) : 0;
  const way = record.direction === "out" ? "sent" : "received";
  const cells = [link, tag(record.protocol), h("span", { title: way, role: "img", "aria-label": way }, record.direction === "out" ? "↑" : "↓"), h("span", { class: record.verdict }, record.verdict), record.reason ?? "", brief(record.topic), brief(record.key), record.seq ?? "", bytes ? count(bytes) : "", brief(record.peer)];
  return h("tr", { class: "fresh" }, cells.map((cell, i) => h("td", { class: HEAD[i][0] === "bytes" ? "number" : null }, cell)));
}

const brief = (text) => h("span", { title: text }, short(text));

async function one(content, epoch, lsn, signal, fine) {
  const near = (step, word) => h("a", { href: `#/records/${encodeURIComponent(epoch)}/${Number(lsn) + step}` }, word);
  replace(content, h("h1", {}, "Record ", h("span", { class: "mono" }, lsn)), h("p", { class: "links" }, h("a", { href: "#/records" }, "all records"), Number(lsn) > 1 ? near(-1, "← earlier") : null, near(1, "later →")));
  const { record, decoded, why } = await get(`api/v1/records/${encodeURIComponent(epoch)}/${lsn}`, { signal });
  fine();
  const raw = record.raw ? Uint8Array.from(atob(record.raw), (c) => c.charCodeAt(0)) : new Uint8Array();
  const verdict = h("p", {}, tag(record.protocol), " ", h("strong", { class: record.verdict }, record.verdict), why.reason ? [" — ", h("b", {}, why.reason), `: ${why.meaning}. ${about(why)}`] : " — it met every rule of its protocol.");
  const bytes = hex(raw);
  const meaning = Object.keys(decoded).length ? linked(decoded, raw, bytes) : h("p", { class: "empty" }, "nothing to decode: no bytes were kept");
  content.append(h("div", { class: "grid" }, wide("Why", verdict), card("Decoded", meaning), card(`Raw, ${count(raw.length)} bytes`, bytes), wide("Kept", facts(kept(record)))));
}

const about = (why) => (why.about === "content" ? "It follows from the bytes, so everybody who has them comes to the same verdict." : "It depends on what the node knew when they came.");

// What it can be found by leads to everything like it.
function kept({ raw: _, ...rest }) {
  return Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, value === null || value === "" ? "–" : FILTERS.includes(name) ? h("a", { href: `#/records/?${new URLSearchParams({ [name]: value })}` }, value) : value]));
}
