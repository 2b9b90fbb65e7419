// Overview: what the node is doing now, how far the lake is behind, and what is wrong if something is.

import { get } from "./api.js";
import { bar, spark, throughput } from "./charts.js";
import { card, count, facts, h, pause, redraw, replace, size, span, table, tag, wide } from "./dom.js";

export const title = "Overview";
export const twin = () => "api/v1/status";
const KEEP = 90;
const LATE = 60; // seconds behind that deserve a word

export async function show(content, _, signal, fine) {
  const chart = h("div"), verdicts = h("div"), node = h("div"), flow = h("div"), wrong = h("div");
  replace(content, h("h1", {}, "Overview"), wrong, h("div", { class: "grid" }, wide("Messages per second", chart), card("From journal to lake", flow), card("Node", node), wide("Verdicts", verdicts)));
  const samples = [], behind = [];
  let before = null;
  while (!signal.aborted) {
    const [status, lag] = await Promise.all([get("api/v1/status", { signal }), get("api/v1/lag/", { signal })]);
    fine();
    const now = { at: performance.now() / 1000, totals: totals(status.statistics.verdicts) };
    if (before) samples.push({ at: now.at, rates: rates(before, now) });
    if (samples.length > KEEP) samples.shift();
    behind.push(lag.behind_seconds);
    if (behind.length > KEEP) behind.shift();
    before = now;
    replace(chart, throughput(samples, chart.clientWidth || 640));
    replace(node, about(status));
    replace(flow, stages(lag, behind));
    redraw(verdicts, verdictTable(status.statistics.verdicts));
    replace(wrong, troubles(status, lag));
    await pause(1000);
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
  const seconds = Math.max(0.001, now.at - before.at);
  return Object.fromEntries(Object.entries(now.totals).map(([protocol, sum]) => [protocol, Math.max(0, sum - (before.totals[protocol] || 0)) / seconds]));
}

function about(status) {
  return facts({
    state: h("span", { class: status.state === "ready" ? "accept" : "ignore" }, status.state),
    running: span((status.now - status.started_at) / 1e6),
    protocols: h("span", { class: "tags" }, status.protocols.map(tag)),
    "newest record": count(status.newest),
    followers: count(status.statistics.followers),
    "free disk": size(status.statistics.journal.disk_free_bytes ?? 0),
  });
}

function stages(lag, behind) {
  const landed = lag.newest - lag.not_landed_records;
  const step = (name, value, of, kind) => h("div", { class: "step" }, h("span", {}, name), h("b", {}, count(value)), h("div", { class: "track" }, bar(value, of, kind)));
  const lines = [step("kept in the journal", lag.newest, lag.newest, "accept"), step("sealed into segments", lag.sealed, lag.newest, "accept")];
  if (!lag.has_tables) return [lines, h("p", { class: "empty" }, "nothing of this journal has landed yet: run `syncline lake run --follow`")];
  lines.push(step("landed in tables", landed, lag.newest, "accept"));
  const waiting = Object.entries(lag.not_landed).filter(([, number]) => number).map(([name, number]) => [tag(name), ` ${count(number)} `]);
  return [lines, h("p", { id: "behind" }, "The tables are ", h("b", {}, span(lag.behind_seconds)), " behind", waiting.length ? [": waiting are ", waiting] : "."), spark(behind, "seconds behind")];
}

function verdictTable(verdicts) {
  const rows = Object.entries(verdicts).map(([name, value]) => [...name.split("/"), value]).sort((a, b) => b[3] - a[3]);
  const largest = Math.max(1, ...rows.map((row) => row[3]));
  const columns = [{ name: "protocol" }, { name: "verdict" }, { name: "reason" }, { name: "messages", kind: "number" }, { name: "", kind: "wrap hide-narrow" }];
  return table(columns, rows.map(([protocol, verdict, reason, value]) => [tag(protocol), h("a", { class: verdict, href: `#/records/?${new URLSearchParams({ protocol, verdict })}` }, verdict), reason, count(value), bar(value, largest, verdict)]), "no messages yet", "verdicts with reasons");
}

function troubles(status, lag) {
  const found = [];
  const journal = status.statistics.journal;
  if (status.state !== "ready") found.push(`The node is ${status.state}.`);
  if (journal.damaged) found.push("The journal is damaged: stop the node and run `syncline journal verify`.");
  if (journal.intake > 0) found.push(journal.intake > 1 ? "The disk is almost full: nothing is taken in." : "The disk is getting full: rejected messages are no longer kept.");
  if (journal.failed_commits) found.push(`${count(journal.failed_commits)} commits failed; senders were told to try again.`);
  if (status.statistics.judge_failures) found.push(`${count(status.statistics.judge_failures)} messages hit a fault of ours while being judged; the log tells which.`);
  if (lag.has_tables && lag.behind_seconds > LATE) found.push(`The tables are ${span(lag.behind_seconds)} behind. Is the pipeline running?`);
  return found.length ? h("div", { class: "card wide trouble", role: "status" }, found.map((text) => h("div", {}, text))) : null;
}
