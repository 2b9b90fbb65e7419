// Overview: what the node is doing now, how far the lake is behind, and what is wrong if something is.

import { get, Silence } from "./api.js";
import { bar, spark, throughput } from "./charts.js";
import { card, count, facts, h, pause, replace, size, span, table, tag, update, wide } from "./dom.js";

export const title = "Overview";
export const twin = () => "api/v1/status";
const KEEP = 120; // seconds
const LATE = 60; // seconds behind that deserve a word
const past = { samples: [], behind: [], before: null }; // stays when the reader looks at another page and comes back

export async function show(content, _, signal, fine) {
  const chart = h("div", { class: "chart" }), verdicts = h("div"), node = h("div"), flow = h("div"), wrong = h("div", { role: "status" });
  replace(content, h("h1", {}, "Overview"), wrong, h("div", { class: "grid" }, wide("Messages per second", chart), card("From journal to lake", flow), card("Node", node), wide("Verdicts", verdicts)));
  const meanings = await reasons(signal);
  while (!signal.aborted) {
    const [status, lag] = await Promise.all([get("api/v1/status", { signal }), lagOf(signal)]);
    fine();
    remember(status, lag);
    update(chart, throughput(past.samples, chart.clientWidth || 640));
    update(node, about(status));
    update(flow, stages(lag, past.behind));
    update(verdicts, verdictTable(status.statistics.verdicts, meanings));
    update(wrong, troubles(status, lag));
    await pause(1000);
  }
}

async function reasons(signal) {
  const { reasons } = await get("api/v1/reasons", { signal });
  return Object.fromEntries(reasons.map((each) => [each.reason, each.meaning]));
}

// A lake that cannot be read is no reason to hide the node.
async function lagOf(signal) {
  try {
    return await get("api/v1/lag/", { signal });
  } catch (error) {
    if (error instanceof Silence || error.name === "AbortError") throw error;
    return { problem: error.message };
  }
}

function remember(status, lag) {
  const now = { at: performance.now() / 1000, started: status.started_at, totals: totals(status.statistics.verdicts) };
  const { before, samples, behind } = past;
  if (before && before.started !== now.started) { samples.length = behind.length = 0; } // another life: its counters began anew
  else if (before && now.at - before.at > 0.2) samples.push({ at: now.at, rates: rates(before, now) });
  while (samples.length && now.at - samples[0].at > KEEP) samples.shift();
  if (lag.behind_seconds !== undefined) behind.push(lag.behind_seconds);
  if (behind.length > KEEP) behind.shift();
  past.before = now;
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
  const seconds = now.at - before.at;
  return Object.fromEntries(Object.entries(now.totals).map(([protocol, sum]) => [protocol, Math.max(0, sum - (before.totals[protocol] || 0)) / seconds]));
}

function about(status) {
  return facts({
    state: h("span", { class: status.state === "ready" ? "accept" : "ignore" }, status.state),
    running: span((status.now - status.started_at) / 1e6),
    protocols: h("span", { class: "tags" }, status.protocols.map(tag)),
    key: h("span", { class: "mono" }, status.node),
    ...(status.addresses.length ? { "libp2p at": status.addresses.map((each) => h("div", { class: "mono" }, each.replace(/\/p2p\/.*/, ""))) } : {}),
    "free disk": size(status.statistics.journal.disk_free_bytes ?? 0),
  });
}

function stages(lag, behind) {
  if (lag.problem) return h("p", { class: "empty" }, `The lake cannot be read: ${lag.problem}`);
  const landed = lag.newest - lag.not_landed_records;
  const step = (name, value, of) => h("div", { class: "step" }, h("span", {}, name), h("b", {}, count(value)), h("div", { class: "track" }, bar(value, of, "accept")));
  const lines = [step("kept in the journal", lag.newest, lag.newest), step("sealed into segments", lag.sealed, lag.newest)];
  if (!lag.has_tables) return [lines, h("p", { class: "empty" }, "Nothing of this journal has landed yet: run ", h("code", {}, "syncline lake run --follow"), ".")];
  if (lag.or_more) return [lines, h("p", { id: "behind" }, "The tables are ", h("b", {}, span(lag.behind_seconds)), ` and more than ${count(lag.not_landed_records)} records behind.`), spark(behind, "seconds behind")];
  lines.push(step("landed in tables", landed, lag.newest));
  const waiting = Object.entries(lag.not_landed).filter(([, number]) => number).map(([name, number]) => h("span", { class: "pair" }, tag(name), ` ${count(number)}`));
  return [lines, h("p", { id: "behind" }, "The tables are ", h("b", {}, span(lag.behind_seconds)), " behind", waiting.length ? "; waiting: " : ".", h("span", { class: "tags" }, waiting)), spark(behind, "seconds behind")];
}

// In an order that stays, so that a row is still there when the pointer arrives.
function verdictTable(verdicts, meanings) {
  const rows = Object.entries(verdicts).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => [...name.split("/"), value]);
  const largest = Math.max(1, ...rows.map((row) => row[3]));
  const columns = [{ name: "protocol" }, { name: "verdict" }, { name: "messages", kind: "number" }, { name: "", kind: "bars hide-narrow" }, { name: "reason" }, { name: "meaning", kind: "wrap dim hide-narrow" }];
  return table(columns, rows.map(([protocol, verdict, reason, value]) => [tag(protocol), to(verdict, { protocol, verdict }, verdict), count(value), bar(value, largest, verdict), reason ? to(reason, { protocol, verdict, reason }) : "", meanings[reason] ?? ""]), "no messages yet", "verdicts with reasons");
}

const to = (text, filters, kind) => h("a", { class: kind, href: `#/records/?${new URLSearchParams(filters)}` }, text);

function troubles(status, lag) {
  const found = [];
  const journal = status.statistics.journal;
  if (status.state !== "ready") found.push(`The node is ${status.state}.`);
  if (journal.damaged) found.push("The journal is damaged: stop the node and run `syncline journal verify`.");
  if (journal.intake > 0) found.push(journal.intake > 1 ? "The disk is almost full: nothing is taken in." : "The disk is getting full: rejected messages are no longer kept.");
  if (journal.failed_commits) found.push(`${count(journal.failed_commits)} commits failed; senders were told to try again.`);
  if (status.statistics.judge_failures) found.push(`${count(status.statistics.judge_failures)} messages hit a fault of ours while being judged; the log tells which.`);
  if (lag.has_tables && lag.behind_seconds > LATE) found.push(`The tables are ${span(lag.behind_seconds)} behind. Is the pipeline running?`);
  return found.length ? h("div", { class: "card wide trouble" }, found.map((text) => h("div", {}, text))) : null;
}
