// A message as bytes beside what it says. Point at a value, or move to it by Tab, and the bytes that spell it light up;
// point at a byte, and the value does.

import { count, h } from "./dom.js";

const SHOWN = 16384, LINE = 74; // bytes drawn; characters of a full line, with its end
const LEAST = 3; // shorter than that is found everywhere

export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, SHOWN); at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const text = part.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${part.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(48)} ${text}`);
  }
  if (bytes.length > SHOWN) lines.push(`… ${count(bytes.length - SHOWN)} more`);
  return h("pre", { tabindex: "0", class: "hex" }, lines.join("\n") || "nothing kept: an ignored message leaves no bytes");
}

// The decoded value as JSON, its parts tied to the bytes they stand in.
export function linked(value, raw, bytes) {
  const places = [];
  let from = 0; // a message mostly tells its fields in the order they are shown
  const mark = (text, part) => {
    const found = part === null || typeof part === "boolean" ? null : place(raw.subarray(0, SHOWN), part, from);
    if (!found) return text;
    from = found.end;
    const node = h("span", { class: "tied", tabindex: "0", onpointerenter: () => light(bytes, found), onfocus: () => light(bytes, found), onpointerleave: () => light(bytes, null), onblur: () => light(bytes, null) }, text);
    places.push({ ...found, node });
    return node;
  };
  const text = h("pre", {}, pretty(value, "", mark));
  bytes.onpointermove = (event) => {
    const at = byteAt(bytes, event);
    const over = places.find((each) => at >= each.start && at < each.end);
    for (const each of places) each.node.classList.toggle("lit", each === over);
    light(bytes, over ?? null);
  };
  bytes.onpointerleave = () => { for (const each of places) each.node.classList.remove("lit"); light(bytes, null); };
  return places.length ? [text, h("p", { class: "dim" }, "Point at an underlined value to see the bytes that spell it, or at a byte to see the value.")] : text;
}

// The same text as JSON.stringify(value, null, 2), in pieces.
function pretty(value, indent, mark) {
  if (value === null || typeof value !== "object") return [mark(JSON.stringify(value), value)];
  const list = Array.isArray(value), deeper = `${indent}  `;
  const parts = Object.entries(value).map(([name, part], i) => [i ? ",\n" : "\n", deeper, list ? "" : `${JSON.stringify(name)}: `, pretty(part, deeper, mark)]);
  return parts.length ? [list ? "[" : "{", parts, "\n", indent, list ? "]" : "}"] : [list ? "[]" : "{}"];
}

// Where a value stands in the bytes: as text, as the bytes its hex names, or as a little-endian double.
function place(raw, value, from) {
  for (const wanted of spellings(value)) {
    if (wanted.length < LEAST) continue;
    const start = [search(raw, wanted, from), search(raw, wanted, 0)].find((at) => at >= 0);
    if (start !== undefined) return { start, end: start + wanted.length };
  }
  return null;
}

function spellings(value) {
  const text = new TextEncoder().encode(String(value));
  if (typeof value === "number") return value ? [text, new Uint8Array(new Float64Array([value]).buffer)] : [];
  if (/^([0-9a-f]{2}){4,}$/i.test(value)) return [text, Uint8Array.from(value.match(/../g), (pair) => parseInt(pair, 16))];
  return [text];
}

function search(raw, wanted, from) {
  for (let at = raw.indexOf(wanted[0], from); at >= 0; at = raw.indexOf(wanted[0], at + 1)) {
    if (wanted.every((byte, i) => raw[at + i] === byte)) return at;
  }
  return -1;
}

// Lights up bytes without touching the text, so that a selection stays.
function light(bytes, found) {
  if (!globalThis.Highlight) return;
  const ranges = [];
  for (let line = found ? found.start >> 4 : 1; found && line <= (found.end - 1) >> 4; line += 1) {
    const first = Math.max(found.start - line * 16, 0), last = Math.min(found.end - line * 16, 16);
    ranges.push(range(bytes, line * LINE + 8 + first * 3, line * LINE + 8 + last * 3 - 1), range(bytes, line * LINE + 57 + first, line * LINE + 57 + last));
  }
  CSS.highlights.set("bytes", new Highlight(...ranges));
}

function range(bytes, start, end) {
  const found = new Range();
  found.setStart(bytes.firstChild, start);
  found.setEnd(bytes.firstChild, end);
  return found;
}

function byteAt(bytes, { clientX, clientY }) {
  const caret = document.caretPositionFromPoint?.(clientX, clientY);
  const offset = caret ? (caret.offsetNode === bytes.firstChild ? caret.offset : -1) : document.caretRangeFromPoint?.(clientX, clientY)?.startOffset ?? -1;
  const column = offset % LINE;
  if (offset < 0 || column < 8) return -1;
  return Math.floor(offset / LINE) * 16 + (column >= 57 ? column - 57 : column < 56 ? Math.floor((column - 8) / 3) : -99999);
}
