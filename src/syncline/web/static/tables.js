// Tables: what has landed in the lake, with the newest rows.

import { get } from "./api.js";
import { count, h, pause, replace, size, table, update, wide } from "./dom.js";

export const title = "Tables";
export const twin = ([name]) => (name ? `api/v1/tables/${encodeURIComponent(name)}` : "api/v1/tables/");
const TIME = /^\d{4}-\d\d-\d\dT[\d:]{8}/;

export async function show(content, [name], signal, fine) {
  return name ? one(content, name, signal, fine) : list(content, signal, fine);
}

async function list(content, signal, fine) {
  const place = h("div");
  replace(content, h("h1", {}, "Tables"), h("div", { class: "grid" }, wide("Delta tables of the lake", place)));
  const columns = [{ name: "table" }, { name: "rows", kind: "number" }, { name: "files", kind: "number" }, { name: "size", kind: "number" }, { name: "version", kind: "number hide-narrow" }, { name: "holds", kind: "wrap hide-narrow" }];
  while (!signal.aborted) {
    const { tables } = await get("api/v1/tables/", { signal });
    fine();
    update(place, table(columns, tables.map((each) => [h("a", { href: `#/tables/${encodeURIComponent(each.name)}` }, each.name), count(each.rows), count(each.files), size(each.bytes), count(each.version), each.doc]), "nothing has landed yet: run `syncline lake run`", "tables"));
    await pause(3000);
  }
}

async function one(content, name, signal, fine) {
  const place = h("div"), about = h("p", { class: "dim" });
  replace(content, h("h1", {}, name), h("p", { class: "links" }, h("a", { href: "#/tables" }, "all tables")), about, h("div", { class: "grid" }, wide("Newest rows", place)));
  while (!signal.aborted) {
    const { columns, rows, total, doc, newest_by } = await get(`api/v1/tables/${encodeURIComponent(name)}?limit=50`, { signal });
    fine();
    about.textContent = `${doc} ${count(total)} rows${newest_by ? `; the newest by ${newest_by}` : ""}.`;
    // What the rows are ordered by comes first; the bucket only says in which file a row is.
    const shown = columns.map((column, i) => ({ column, i })).filter(({ column }) => column !== "bucket").sort((a, b) => (b.column === newest_by) - (a.column === newest_by));
    const heads = shown.map(({ column, i }) => ({ name: column, kind: rows.some((row) => typeof row[i] === "number") ? "number" : "" }));
    update(place, table(heads, rows.map((row) => shown.map(({ i }) => cell(row[i]))), "the table is empty", "rows"));
    await pause(5000);
  }
}

function cell(value) {
  if (value === null || value === undefined) return h("span", { class: "dim" }, "–");
  if (typeof value === "string" && TIME.test(value)) return h("span", { title: value }, value.slice(0, 23).replace("T", " "));
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  const words = /[ "]/.test(text);
  if (text.length <= (words ? 64 : 40)) return text;
  return h("span", { title: text.slice(0, 2000) }, words ? `${text.slice(0, 61)}…` : `${text.slice(0, 10)}…${text.slice(-8)}`); // of a long name the end tells most
}
