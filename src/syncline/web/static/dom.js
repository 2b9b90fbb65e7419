// Builds DOM from data. Text is always set as text: what a stranger wrote in a message can never become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node[name] = value; // a property, so that `update` can hand it on
    else if (name === "style") node.style.cssText = value; // through the object model: the page's policy forbids style attributes
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

export function table(columns, rows, empty = "nothing yet", label = "table") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = columns.map((column) => h("th", { class: column.kind, scope: "col" }, column.name ?? column));
  const body = rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: columns[i].kind }, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

// Makes a place look like what was drawn anew, touching only what differs: the keyboard, a selection, a tooltip and
// where something is scrolled to stay as the reader has them, though the page draws itself every second.
export function update(place, ...drawn) {
  const wanted = drawn.flat(Infinity).filter((each) => each || each === 0).map((each) => (each instanceof Node ? each : document.createTextNode(String(each))));
  wanted.forEach((child, i) => {
    const old = place.childNodes[i];
    if (!old) place.append(child);
    else if (old.nodeName !== child.nodeName) old.replaceWith(child);
    else if (old instanceof Text) { if (old.data !== child.data) old.data = child.data; }
    else { alike(old, child); update(old, [...child.childNodes]); }
  });
  while (place.childNodes.length > wanted.length) place.lastChild.remove();
}

function alike(old, child) {
  for (const { name } of [...old.attributes]) if (!child.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of child.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== child.style.cssText) old.style.cssText = child.style.cssText;
  old.onclick = child.onclick;
}

export const card = (title, ...children) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title), children);
export const wide = (title, ...children) => h("section", { class: "card wide", "aria-label": title }, h("h2", {}, title), children);
export const json = (value) => h("pre", { tabindex: "0" }, JSON.stringify(value, null, 2));
export const tag = (protocol) => h("span", { class: "tag", style: `--c:${colour(protocol)}` }, protocol);
export const pause = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));

export function count(value) {
  return typeof value === "number" ? value.toLocaleString("en") : value ?? "";
}

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (bytes >= 1000 && i < units.length - 1) { bytes /= 1000; i += 1; }
  return `${bytes < 10 && i ? bytes.toFixed(1) : Math.round(bytes)} ${units[i]}`;
}

export function span(seconds) {
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export const PROTOCOLS = ["sds", "sdsp", "relay", "svs", "shrex"];
export const colour = (protocol) => `var(--p${PROTOCOLS.includes(protocol) ? PROTOCOLS.indexOf(protocol) : 5})`;
export const time = (text) => text.slice(11, 23);
export const short = (name) => (name && name.length > 16 ? `${name.slice(0, 6)}…${name.slice(-6)}` : name ?? "");
