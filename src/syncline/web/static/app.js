// Routes between pages and keeps the frame around them: navigation, problems, theme.

import { get, Problem } from "./api.js";
import { pause, replace, short } from "./dom.js";
import * as overview from "./overview.js";
import * as records from "./records.js";
import * as peers from "./peers.js";
import * as objects from "./objects.js";
import * as map from "./map.js";
import * as tables from "./tables.js";

const PAGES = { "": overview, records, peers, objects, map, tables };
const content = document.getElementById("content");
let leave = new AbortController();

function problem(error) {
  const box = document.getElementById("problem");
  if (error && error.name === "AbortError") return;
  box.hidden = !error;
  replace(box, document.createTextNode(error ? (error instanceof Problem ? error.message : `The page failed: ${error.message}`) : ""));
}

async function show(event) {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const page = PAGES[name] ?? overview;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === (name || "overview")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.getElementById("twin").href = page.twin(rest);
  problem(null);
  replace(content);
  document.title = `${page.title} · Syncline`;
  if (event) content.focus({ preventScroll: true }); // a reader of the screen hears that the page is another
  while (!signal.aborted) {
    try {
      await page.show(content, rest, signal, () => problem(null));
      return;
    } catch (error) {
      if (signal.aborted) return;
      problem(error);
      await pause(2000);
    }
  }
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash names the page
  content.focus();
});

const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("syncline.theme", root.dataset.theme);
});
const theme = localStorage.getItem("syncline.theme");
if (theme === "light" || theme === "dark") root.dataset.theme = theme;

addEventListener("hashchange", show);
show();
get("api/v1/status").then((status) => replace(document.getElementById("who"), document.createTextNode(`node ${short(status.node)}, epoch ${status.epoch}`))).catch(() => {});
