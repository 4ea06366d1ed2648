// The list of conversations: renaming and deleting from a row's menu, searching, and where it was scrolled to.
// The rows come over the socket and may be replaced at any time; menus and dialogs are outside of them.

import { openerOf } from "./frame.js";
import { store } from "./storage.js";

const element = (id) => document.getElementById(id);
const rows = (id) => document.querySelectorAll(`.row[data-conversation="${CSS.escape(id)}"]`);
let chosen = null; // {id, title} of the row whose menu was opened

// A row's menu

function open(action) {
  const row = openerOf(element("row-menu"))?.closest(".row");
  if (!row) return;
  chosen = { id: row.dataset.conversation, title: row.querySelector(".name").textContent };
  element("row-menu").hidePopover();
  element(`${action}-problem`).replaceChildren();
  element(`${action}-form`).setAttribute("hx-post", `/c/${chosen.id}/${action === "rename" ? "title" : action}`);
  if (action === "rename") element("rename-title").value = chosen.title;
  else element("delete-title").textContent = chosen.title;
  element(`${action}-dialog`).showModal();
  if (action === "rename") {
    element("rename-title").select();
    element("rename-title").scrollLeft = 0; // its beginning shows
  }
}

document.addEventListener("click", (event) => {
  const action = event.target.closest?.("[data-row-action]")?.dataset.rowAction;
  if (action) open(action);
});

// What the list does not bring by itself: rows further down, and those that were found.
function renamed() {
  const title = element("rename-title").value.trim().replace(/\s+/g, " ");
  for (const row of rows(chosen.id)) row.querySelector(".name").textContent = title;
}

function deleted() {
  for (const row of rows(chosen.id)) row.remove();
}

document.addEventListener("htmx:finally:request", (event) => {
  const { ctx } = event.detail;
  const action = { "rename-form": "rename", "delete-form": "delete" }[ctx.sourceElement?.id];
  if (!action) return;
  if (!ctx.response) {
    element(`${action}-problem`).textContent = "The site cannot be reached. Nothing was changed.";
  } else if (ctx.response.status < 400) {
    element(`${action}-dialog`).close();
    if (action === "rename") renamed();
    else deleted();
    (element(`actions-${chosen.id}`) ?? element("search")).focus();
  }
});

// Searching: what was found takes the place of the list for as long as there is something to search for

const box = element("search");

function endSearch() {
  box.value = "";
  element("found").replaceChildren();
  box.dispatchEvent(new Event("input", { bubbles: true })); // takes the place of a request on its way
}

box.addEventListener("input", () => {
  if (!box.value.trim()) element("found").replaceChildren();
});
box.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && box.value) {
    event.preventDefault(); // an open drawer stays
    endSearch();
  } else if (event.key === "ArrowDown" || event.key === "Enter") {
    const first = document.querySelector("#found a");
    if (!first) return;
    event.preventDefault();
    if (event.key === "Enter") first.click();
    else first.focus();
  }
});

// The place in the list, from one conversation to the next

const lists = element("lists");
const PLACE = "sidebar-place";
const places = store("sessionStorage");

function restore() {
  lists.scrollTop = Number(places.get(PLACE) ?? 0);
  lists.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
}

restore();
addEventListener("pagehide", () => places.set(PLACE, String(lists.scrollTop)));

// The list comes anew, the rows further down do not: what leaves its end goes ahead of them, and what they had too goes.

const idOf = (row) => row.dataset.conversation;

function carryOver(before, now) {
  const older = element("older");
  if (!older.querySelector(".row")) return; // none was loaded: they come as the list now goes on
  const [had, has] = [before, now].map((list) => [...list.querySelectorAll(".row")]);
  const [hadIds, hasIds] = [had, has].map((list) => new Set(list.map(idOf)));
  for (const row of older.querySelectorAll(".row")) if (hasIds.has(idOf(row))) row.remove();
  now.querySelector(".more")?.remove(); // what it would load is there
  const lastKept = has.findLastIndex((row) => hadIds.has(idOf(row)));
  const pushed = has.slice(0, lastKept + 1).filter((row) => !hadIds.has(idOf(row))).length;
  const gone = pushed ? had.filter((row) => !hasIds.has(idOf(row))).slice(-pushed) : [];
  older.querySelector("ul").prepend(...gone);
}

new MutationObserver((records) => {
  const now = element("conversations");
  for (const { removedNodes } of records) {
    for (const node of removedNodes) if (node.id === "conversations" && now) carryOver(node, now);
  }
}).observe(document.querySelector(".by-time"), { childList: true });
