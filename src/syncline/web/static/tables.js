// Tables: what has landed in the lake, with the newest rows.

import { get } from "./api.js";
import { card, count, h, replace, size, table, wide } from "./dom.js";

export const title = "Tables";
export const twin = ([name]) => (name ? `api/v1/tables/${encodeURIComponent(name)}` : "api/v1/tables/");

export async function show(content, [name], signal, fine) {
  return name ? one(content, name, signal, fine) : list(content, signal, fine);
}

async function list(content, signal, fine) {
  const place = h("div");
  replace(content, h("h1", {}, "Tables"), h("div", { class: "grid" }, wide("Delta tables of the lake", place)));
  while (!signal.aborted) {
    const { tables } = await get("api/v1/tables/", { signal });
    fine();
    replace(place, table([{ name: "table" }, { name: "rows", kind: "number" }, { name: "files", kind: "number" }, { name: "size", kind: "number" }, { name: "version", kind: "number" }, { name: "holds", kind: "wrap" }],
      tables.map((each) => [h("a", { href: `#/tables/${encodeURIComponent(each.name)}` }, each.name), count(each.rows), count(each.files), size(each.bytes), count(each.version), each.doc]), "nothing has landed yet: run `syncline lake run`"));
    await new Promise((wake) => setTimeout(wake, 3000));
  }
}

async function one(content, name, signal, fine) {
  const { columns, rows } = await get(`api/v1/tables/${encodeURIComponent(name)}?limit=50`, { signal });
  fine();
  replace(content, h("h1", {}, name), h("p", {}, h("a", { href: "#/tables" }, "all tables")), h("div", { class: "grid" }, wide("Newest rows", table(columns.map((column) => ({ name: column })), rows.map((row) => row.map(cell)), "the table is empty"))));
}

function cell(value) {
  if (value === null || value === undefined) return h("span", { class: "dim" }, "–");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.length > 60 ? h("span", { title: text.slice(0, 2000) }, `${text.slice(0, 57)}…`) : text;
}
