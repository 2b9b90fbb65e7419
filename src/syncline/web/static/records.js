// Records: the live stream with filters, and one record's bytes, meaning and verdict.

import { get, records as fetchRecords } from "./api.js";
import { card, colour, count, facts, h, json, replace, wide } from "./dom.js";
import { short } from "./charts.js";

export const title = "Records";
export const twin = ([epoch, lsn]) => (lsn ? `api/v1/records/${epoch}/${lsn}` : "api/v1/records?last=100");
const SHOWN = 200;
const FILTERS = ["protocol", "topic", "kind", "key", "publisher", "verdict"];

export async function show(content, [epoch, lsn], signal, fine) {
  if (lsn) return one(content, epoch, lsn, signal);
  return stream(content, epoch ?? "", signal, fine);
}

async function stream(content, given, signal, fine) {
  const wanted = new URLSearchParams(given.replace(/^\?/, ""));
  const inputs = FILTERS.map((name) => h("label", {}, name, h("input", { name, value: wanted.get(name) ?? "", size: name === "verdict" || name === "kind" ? 8 : 14, autocomplete: "off" })));
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; pause.setAttribute("aria-pressed", paused); pause.textContent = paused ? "Go on" : "Pause"; } }, "Pause");
  let paused = false;
  const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); const chosen = [...new FormData(form)].filter(([, value]) => value); location.hash = `#/records/?${new URLSearchParams(chosen)}`; } }, inputs, h("button", {}, "Filter"), pause);
  const body = h("tbody");
  const head = ["time", "protocol", "", "verdict", "reason", "topic", "about", "seq", "bytes", "from"].map((name) => h("th", { scope: "col" }, name));
  const empty = h("p", { class: "empty" }, "waiting for records…");
  replace(content, h("h1", {}, "Records"), form, h("div", { class: "card scroll", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, head)), body), empty));
  const filters = Object.fromEntries([...wanted].filter(([name]) => FILTERS.includes(name)));
  let page = await fetchRecords({ ...filters, last: 50 }, signal);
  while (!signal.aborted) {
    fine();
    if (page.records.length) empty.remove();
    for (const record of page.records) body.prepend(row(record));
    while (body.childElementCount > SHOWN) body.lastElementChild.remove();
    while (paused && !signal.aborted) await new Promise((wake) => setTimeout(wake, 200));
    page = await fetchRecords({ ...filters, after: page.next, epoch: page.epoch, wait: 25, limit: SHOWN }, signal);
    await new Promise((wake) => setTimeout(wake, 150));
  }
}

function row(record) {
  const link = h("a", { href: `#/records/${record.epoch}/${record.lsn}` }, record.received_at.slice(11, 23));
  const bytes = record.raw ? Math.floor((record.raw.length * 3) / 4) : 0;
  return h("tr", { class: "fresh" }, [link, h("span", { style: `color:${colour(record.protocol)}` }, record.protocol), record.direction === "out" ? "↑" : "↓", h("span", { class: record.verdict }, record.verdict), record.reason ?? "", short(record.topic), short(record.key), record.seq ?? "", bytes ? count(bytes) : "", short(record.peer)].map((cell) => h("td", {}, cell)));
}

async function one(content, epoch, lsn, signal) {
  const { record, decoded, why } = await get(`api/v1/records/${epoch}/${lsn}`, { signal });
  const raw = record.raw ? Uint8Array.from(atob(record.raw), (c) => c.charCodeAt(0)) : new Uint8Array();
  const { raw: _, ...rest } = record;
  const verdict = h("p", {}, h("strong", { class: record.verdict }, record.verdict), why.reason ? ` — ${why.reason}: ${why.meaning} (about ${why.about})` : " — it met every rule of its protocol");
  const near = (step, word) => h("a", { href: `#/records/${epoch}/${Number(lsn) + step}` }, word);
  replace(content, h("h1", {}, "Record ", h("span", { class: "mono" }, record.name)), h("p", {}, Number(lsn) > 1 ? near(-1, "← earlier") : null, " ", near(1, "later →")),
    h("div", { class: "grid" }, wide("Why", verdict), card("Decoded", json(decoded)), card("Kept", facts(Object.fromEntries(Object.entries(rest).map(([k, v]) => [k, v ?? "–"])))), wide(`Raw, ${count(raw.length)} bytes`, h("pre", { tabindex: "0" }, hex(raw)))));
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
