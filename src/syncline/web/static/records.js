// Records: the live stream with filters, and one record's bytes, meaning and verdict.

import { get, records as fetchRecords } from "./api.js";
import { card, count, facts, h, json, pause, PROTOCOLS, replace, short, tag, wide } from "./dom.js";

export const title = "Records";
export const twin = ([epoch, lsn]) => (lsn ? `api/v1/records/${encodeURIComponent(epoch)}/${lsn}` : `api/v1/records${epoch ? `${epoch}&` : "?"}last=100`);
const SHOWN = 200;
const CHOICES = { protocol: PROTOCOLS, verdict: ["accept", "reject", "ignore"] };
const FILTERS = ["protocol", "verdict", "kind", "topic", "key", "publisher"];

export async function show(content, [epoch, lsn], signal, fine) {
  if (lsn) return one(content, epoch, lsn, signal);
  return stream(content, epoch ?? "", signal, fine);
}

async function stream(content, given, signal, fine) {
  const wanted = new URLSearchParams(given.replace(/^\?/, ""));
  let paused = false;
  const go = (event) => {
    event?.preventDefault();
    const chosen = [...new FormData(form)].filter(([, value]) => value);
    location.hash = chosen.length ? `#/records/?${new URLSearchParams(chosen)}` : "#/records";
  };
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; hold.setAttribute("aria-pressed", paused); hold.textContent = paused ? "Go on" : "Pause"; } }, "Pause");
  const form = h("form", { class: "filters", onsubmit: go }, FILTERS.map((name) => h("label", {}, name, field(name, wanted.get(name) ?? "", go))), h("button", {}, "Filter"), hold);
  const body = h("tbody");
  const head = ["time", "protocol", "", "verdict", "reason", "topic", "about", "seq", "bytes", "from"].map((name) => h("th", { scope: "col" }, name));
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

function field(name, value, changed) {
  if (!CHOICES[name]) return h("input", { name, value, size: name === "kind" ? 8 : 12, autocomplete: "off", spellcheck: "false" });
  return h("select", { name, onchange: changed }, ["", ...CHOICES[name]].map((each) => h("option", { value: each, selected: each === value }, each || "all")));
}

function row(record) {
  const link = h("a", { href: `#/records/${encodeURIComponent(record.epoch)}/${record.lsn}` }, record.received_at.slice(11, 23));
  const bytes = record.raw ? Math.floor((record.raw.length * 3) / 4) - (record.raw.endsWith("==") ? 2 : record.raw.endsWith("=") ? 1 : 0) : 0;
  return h("tr", { class: "fresh" }, [link, tag(record.protocol), h("span", { title: record.direction === "out" ? "sent" : "received" }, record.direction === "out" ? "↑" : "↓"), h("span", { class: record.verdict }, record.verdict), record.reason ?? "", brief(record.topic), brief(record.key), record.seq ?? "", bytes ? count(bytes) : "", brief(record.peer)].map((cell) => h("td", {}, cell)));
}

const brief = (text) => h("span", { title: text }, short(text));

async function one(content, epoch, lsn, signal) {
  const { record, decoded, why } = await get(`api/v1/records/${encodeURIComponent(epoch)}/${lsn}`, { signal });
  const raw = record.raw ? Uint8Array.from(atob(record.raw), (c) => c.charCodeAt(0)) : new Uint8Array();
  const { raw: _, ...rest } = record;
  const verdict = h("p", {}, h("strong", { class: record.verdict }, record.verdict), why.reason ? ` — ${why.reason}: ${why.meaning} (about its ${why.about})` : " — it met every rule of its protocol");
  const near = (step, word) => h("a", { href: `#/records/${encodeURIComponent(epoch)}/${Number(lsn) + step}` }, word);
  replace(content, h("h1", {}, "Record ", h("span", { class: "mono" }, short(record.node), "/", record.epoch, "/", record.lsn)), h("p", { class: "links" }, h("a", { href: "#/records" }, "all records"), Number(lsn) > 1 ? near(-1, "← earlier") : null, near(1, "later →")),
    h("div", { class: "grid" }, wide("Why", verdict), card("Decoded", Object.keys(decoded).length ? json(decoded) : h("p", { class: "empty" }, "nothing to decode: no bytes were kept")), card(`Raw, ${count(raw.length)} bytes`, h("pre", { tabindex: "0", class: "hex" }, hex(raw))), wide("Kept", facts(Object.fromEntries(Object.entries(rest).map(([k, v]) => [k, v === null || v === "" ? "–" : v]))))));
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 16384); at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const text = part.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${part.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(48)} ${text}`);
  }
  if (bytes.length > 16384) lines.push(`… ${count(bytes.length - 16384)} more`);
  return lines.join("\n") || "nothing kept: an ignored message leaves no bytes";
}
