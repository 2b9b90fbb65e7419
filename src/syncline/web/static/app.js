// Routes between pages and keeps the frame around them: navigation, problems, theme.

import { get, hasToken, Problem, Silence } from "./api.js";
import { h, pause, replace, short, update } from "./dom.js";
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
  content.classList.toggle("stale", error instanceof Silence); // what is on the page was true a while ago
  const said = error instanceof Problem ? error.message : `The page failed: ${error?.message}`;
  update(box, error ? said[0].toUpperCase() + said.slice(1) : ""); // the same words are not read out again
}

async function show(event) {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const page = Object.hasOwn(PAGES, name) ? PAGES[name] : overview;
  for (const link of document.querySelectorAll("nav a")) {
    if (PAGES[link.dataset.page] === page || (page === overview && link.dataset.page === "overview")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.getElementById("twin").href = page.twin(rest);
  problem(null);
  let stage = h("div");
  replace(content, stage);
  titled(page.title);
  if (event) { content.focus({ preventScroll: true }); scrollTo(0, 0); } // a reader of the screen hears that the page is another
  const fine = () => { problem(null); if (!stage.isConnected) replace(content, stage); };
  while (!signal.aborted) {
    try {
      await page.show(stage, rest, signal, fine);
      return;
    } catch (error) {
      if (signal.aborted) return;
      problem(error);
      await pause(2000);
      stage = h("div"); // what was there stays to be read until the node answers again
    }
  }
}

function titled(title, name = document.getElementById("name").textContent) {
  document.title = [title, name, "Syncline"].filter(Boolean).join(" · ");
}

async function introduce() {
  while (true) {
    try {
      const status = await get("api/v1/status");
      document.getElementById("name").textContent = status.name;
      document.getElementById("who").textContent = `node ${short(status.node)}, epoch ${status.epoch}`;
      return titled(document.title.split(" · ")[0]);
    } catch { await pause(3000); }
  }
}

// A browser sends no token with a link, so the page fetches what is behind it.
document.getElementById("twin").addEventListener("click", async (event) => {
  if (!hasToken()) return;
  event.preventDefault();
  try {
    const { text } = await get(event.currentTarget.href, { text: true });
    location.assign(URL.createObjectURL(new Blob([text], { type: "application/json" })));
  } catch (error) { problem(error); }
});

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
introduce();
