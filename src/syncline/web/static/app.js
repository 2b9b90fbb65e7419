// Routes between pages and keeps the frame around them: navigation, problems, theme.

import { get, Problem } from "./api.js";
import { replace } from "./dom.js";
import { short } from "./charts.js";
import * as overview from "./overview.js";
import * as records from "./records.js";
import * as peers from "./peers.js";
import * as objects from "./objects.js";
import * as tables from "./tables.js";

const PAGES = { "": overview, records, peers, objects, tables };
const content = document.getElementById("content");
let leave = new AbortController();

export function problem(error) {
  const box = document.getElementById("problem");
  if (error && error.name === "AbortError") return;
  box.hidden = !error;
  replace(box, document.createTextNode(error ? (error instanceof Problem ? error.message : `The page failed: ${error.message}`) : ""));
}

async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [name, ...rest] = decodeURIComponent(location.hash.replace(/^#\/?/, "")).split("/");
  const page = PAGES[name] ?? overview;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === (name || "overview")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.getElementById("twin").href = page.twin(rest);
  problem(null);
  replace(content);
  document.title = `${page.title} · Syncline`;
  while (!signal.aborted) {
    try {
      await page.show(content, rest, signal, () => problem(null));
      return;
    } catch (error) {
      if (signal.aborted) return;
      problem(error);
      await new Promise((wake) => setTimeout(wake, 2000));
    }
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark") && (document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches));
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("syncline.theme", document.documentElement.dataset.theme);
});
const theme = localStorage.getItem("syncline.theme");
if (theme) document.documentElement.dataset.theme = theme;

addEventListener("hashchange", show);
show();
get("api/v1/status").then((status) => replace(document.getElementById("who"), document.createTextNode(`node ${short(status.node)}, epoch ${status.epoch}`))).catch(() => {});
