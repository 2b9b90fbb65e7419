// Tables: what has landed in the lake, with the newest rows.

import { get } from "./api.js";
import { count, h, pause, redraw, replace, size, table, wide } from "./dom.js";

export const title = "Tables";
export const twin = ([name]) => (name ? `api/v1/tables/${encodeURIComponent(name)}` : "api/v1/tables/");

export async function show(content, [name], signal, fine) {
  return name ? one(content, name, signal, fine) : list(content, signal, fine);
}

async function list(content, signal, fine) {
  const place = h("div");
  replace(content, h("h1", {}, "Tables"), h("div", { class: "grid" }, wide("Delta tables of the lake", place)));
  const columns = [{ name: "table" }, { name: "rows", kind: "number" }, { name: "files", kind: "number" }, { name: "size", kind: "number" }, { name: "version", kind: "number" }, { name: "holds", kind: "wrap hide-narrow" }];
  while (!signal.aborted) {
    const { tables } = await get("api/v1/tables/", { signal });
    fine();
    redraw(place, table(columns, tables.map((each) => [h("a", { href: `#/tables/${encodeURIComponent(each.name)}` }, each.name), count(each.rows), count(each.files), size(each.bytes), count(each.version), each.doc]), "nothing has landed yet: run `syncline lake run`", "tables"));
    await pause(3000);
  }
}

async function one(content, name, signal, fine) {
  const place = h("div"), about = h("p", { class: "dim" });
  replace(content, h("h1", {}, name), h("p", { class: "links" }, h("a", { href: "#/tables" }, "all tables")), about, h("div", { class: "grid" }, wide("Newest rows", place)));
  while (!signal.aborted) {
    const { columns, rows, total, doc } = await get(`api/v1/tables/${encodeURIComponent(name)}?limit=50`, { signal });
    fine();
    about.textContent = `${doc} ${count(total)} rows.`;
    redraw(place, table(columns.map((column) => ({ name: column })), rows.map((row) => row.map(cell)), "the table is empty", "rows"));
    await pause(5000);
  }
}

function cell(value) {
  if (value === null || value === undefined) return h("span", { class: "dim" }, "–");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.length > 48 ? h("span", { title: text.slice(0, 2000) }, `${text.slice(0, 45)}…`) : text;
}
