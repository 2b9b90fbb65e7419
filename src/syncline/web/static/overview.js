// Overview: what the node is doing now, and what is wrong if something is.

import { get } from "./api.js";
import { bar, throughput } from "./charts.js";
import { card, colour, count, facts, h, replace, size, table, wide } from "./dom.js";

export const title = "Overview";
export const twin = () => "api/v1/status";
const KEEP = 90;

export async function show(content, _, signal, fine) {
  const chart = h("div"), verdicts = h("div"), node = h("div"), data = h("div"), wrong = h("div");
  replace(content, h("h1", {}, "Overview"), wrong, h("div", { class: "grid" }, wide("Messages per second", chart), card("Node", node), card("From journal to lake", data), wide("Verdicts", verdicts)));
  const samples = [];
  let before = null;
  while (!signal.aborted) {
    const status = await get("api/v1/status", { signal });
    fine();
    const now = { at: performance.now() / 1000, totals: totals(status.statistics.verdicts) };
    if (before) samples.push({ at: now.at, rates: rates(before, now) });
    if (samples.length > KEEP) samples.shift();
    before = now;
    replace(chart, throughput(samples, chart.clientWidth || 640));
    replace(node, about(status));
    replace(data, flow(status.statistics));
    replace(verdicts, verdictTable(status.statistics.verdicts));
    replace(wrong, troubles(status));
    await new Promise((wake) => setTimeout(wake, 1000));
  }
}

function totals(verdicts) {
  const sums = {};
  for (const [name, value] of Object.entries(verdicts)) {
    const protocol = name.split("/")[0];
    sums[protocol] = (sums[protocol] || 0) + value;
  }
  return sums;
}

function rates(before, now) {
  const span = Math.max(0.001, now.at - before.at);
  return Object.fromEntries(Object.entries(now.totals).map(([protocol, sum]) => [protocol, Math.max(0, sum - (before.totals[protocol] || 0)) / span]));
}

function about(status) {
  return facts({
    state: status.state,
    running: `${count(Math.round((status.now - status.started_at) / 1e6))} s`,
    protocols: status.protocols.map((name, i) => [i ? ", " : "", h("span", { style: `color:${colour(name)}` }, name)]),
    "newest record": count(status.newest),
    followers: count(status.statistics.followers),
    "free disk": size(status.statistics.journal.disk_free_bytes ?? 0),
  });
}

function flow(statistics) {
  const journal = statistics.journal, segments = statistics.segments ?? {};
  const rows = { "in the journal": count(journal.newest_lsn) };
  rows["sealed into segments"] = count(journal.newest_lsn - (segments.unsealed_records ?? 0));
  rows["waiting to be sealed"] = count(segments.unsealed_records ?? 0);
  rows["segments of this run"] = count(segments.segments ?? 0);
  return facts(rows);
}

function verdictTable(verdicts) {
  const rows = Object.entries(verdicts).map(([name, value]) => [...name.split("/"), value]).sort((a, b) => b[3] - a[3]);
  const largest = Math.max(1, ...rows.map((row) => row[3]));
  return table(["protocol", "verdict", "reason", { name: "messages", kind: "number" }, { name: "", kind: "wrap hide-narrow" }].map((c) => (typeof c === "string" ? { name: c } : c)),
    rows.map(([protocol, verdict, reason, value]) => [h("span", { style: `color:${colour(protocol)}` }, protocol), h("a", { class: verdict, href: `#/records/?protocol=${protocol}&verdict=${verdict}` }, verdict), reason, count(value), bar(value, largest, verdict)]));
}

function troubles(status) {
  const found = [];
  const journal = status.statistics.journal;
  if (status.state !== "ready") found.push(`The node is ${status.state}.`);
  if (journal.damaged) found.push("The journal is damaged: run `syncline journal verify`.");
  if (journal.intake > 0) found.push(journal.intake > 1 ? "The disk is almost full: nothing is taken in." : "The disk is getting full: rejected messages are no longer kept.");
  if (status.statistics.judge_failures) found.push(`${count(status.statistics.judge_failures)} messages hit a fault of ours while being judged; the log tells which.`);
  return found.length ? h("div", { class: "card wide reject", role: "status" }, found.map((text) => h("div", {}, text))) : null;
}
