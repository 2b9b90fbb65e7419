// Builds DOM from data. Text is always set as text: what a stranger wrote in a message can never become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick" || name === "oninput" || name === "onchange" || name === "onsubmit") node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const replace = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter((each) => each));

export function facts(pairs) {
  return h("dl", { class: "facts" }, Object.entries(pairs).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function table(columns, rows, empty = "nothing yet") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = columns.map((column) => h("th", { class: column.kind, scope: "col" }, column.name ?? column));
  const body = rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: columns[i].kind }, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export const card = (title, ...children) => h("section", { class: "card" }, h("h2", {}, title), children);
export const wide = (title, ...children) => h("section", { class: "card wide" }, h("h2", {}, title), children);
export const json = (value) => h("pre", { tabindex: "0" }, JSON.stringify(value, null, 2));

export function count(value) {
  return typeof value === "number" ? value.toLocaleString("en") : value ?? "";
}

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (bytes >= 1000 && i < units.length - 1) { bytes /= 1000; i += 1; }
  return `${bytes < 10 && i ? bytes.toFixed(1) : Math.round(bytes)} ${units[i]}`;
}

const PALETTE = ["sds", "sdsp", "relay", "svs", "shrex"];
export const colour = (protocol) => `var(--p${PALETTE.includes(protocol) ? PALETTE.indexOf(protocol) : 5})`;
