// The frame around the conversation: menus, dialogs, the sidebar as a column or a drawer, and the keyboard.

import "./failures.js";
import { store } from "./storage.js";

const GAP = 4; // px between a menu and its button
const ROOM = 320; // px of height that a menu likes to have
const openers = new WeakMap(); // menu -> the button that opened it last

export const openerOf = (menu) => openers.get(menu);
const wide = matchMedia("(min-width: 900px)");
const sidebar = () => document.getElementById("sidebar");

// Menus: popovers at their button

document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest?.("[popovertarget]");
    const menu = button && document.getElementById(button.getAttribute("popovertarget"));
    if (!menu?.matches(".menu")) return;
    if (openers.get(menu) !== button && menu.matches(":popover-open")) menu.hidePopover(); // of another row: this click opens it there
    openers.set(menu, button);
  },
  true,
);

function place(menu) {
  const at = openers.get(menu)?.getBoundingClientRect();
  if (!at) return;
  const width = parseFloat(getComputedStyle(menu).width) || 180; // as the style sheet has it: a closed menu has no size
  const below = innerHeight - at.bottom;
  const above = below < ROOM && at.top > below;
  const wanted = at.left + width + GAP < innerWidth ? at.left : at.right - width;
  Object.assign(menu.style, {
    top: above ? "auto" : `${at.bottom + GAP}px`,
    bottom: above ? `${innerHeight - at.top + GAP}px` : "auto",
    left: `${Math.max(2 * GAP, wanted)}px`,
    maxHeight: `${(above ? at.top : below) - 3 * GAP}px`,
  });
}

const ITEMS = "a[href], button:not(:disabled), input:not(:disabled)";

document.addEventListener(
  "beforetoggle",
  (event) => {
    if (event.target.matches?.(".menu") && event.newState === "open") place(event.target);
  },
  true,
);

document.addEventListener(
  "toggle",
  (event) => {
    const menu = event.target;
    if (!menu.matches?.(".menu")) return;
    const open = event.newState === "open";
    const button = openers.get(menu);
    button?.toggleAttribute("data-open", open);
    if (open) (menu.querySelector("input:checked") ?? menu.querySelector(ITEMS))?.focus({ preventScroll: true });
  },
  true,
);

function walk(event, menu) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.target.matches("input")) return; // radios walk by themselves
  const items = [...menu.querySelectorAll(ITEMS)];
  event.preventDefault();
  items[(items.indexOf(event.target) + step + items.length) % items.length]?.focus();
}

addEventListener("resize", () => document.querySelectorAll(".menu:popover-open").forEach(place));

// Dialogs

document.addEventListener("click", (event) => {
  const opener = event.target.closest?.("[data-dialog]");
  if (opener) {
    opener.closest(".menu")?.hidePopover();
    document.getElementById(opener.dataset.dialog).showModal();
    return;
  }
  const dialog = event.target.closest?.("dialog.dialog");
  if (dialog && (event.target === dialog || event.target.closest("[data-close]"))) dialog.close(); // itself: the scrim
});

// The sidebar: a column that is remembered, or a drawer

function expand(open) {
  const root = document.documentElement;
  if (open) delete root.dataset.sidebar;
  else root.dataset.sidebar = "closed";
  store("localStorage").set("sidebar", open ? "open" : "closed");
  sayExpanded();
}

function sayExpanded() {
  const button = document.getElementById("sidebar-button");
  button?.setAttribute("aria-expanded", String(document.documentElement.dataset.sidebar !== "closed"));
}

document.addEventListener("click", (event) => {
  if (event.target.closest?.("#sidebar-button")) expand(document.documentElement.dataset.sidebar === "closed");
  if (event.target.closest?.("#sidebar a[href]") && sidebar().matches(":popover-open")) sidebar().hidePopover();
});

wide.addEventListener("change", () => sidebar().matches(":popover-open") && sidebar().hidePopover());
new MutationObserver(sayExpanded).observe(document.querySelector(".frame"), { childList: true }); // a new #chat has a new header
sayExpanded();

// The keyboard

function find() {
  if (wide.matches) expand(true);
  else if (!sidebar().matches(":popover-open")) sidebar().showPopover();
  const box = document.getElementById("search");
  box.focus();
  box.select();
}

document.addEventListener("keydown", (event) => {
  const menu = event.target.closest?.(".menu");
  if (menu) walk(event, menu);
  if (!(event.ctrlKey || event.metaKey) || event.altKey || document.querySelector("dialog[open]")) return;
  const key = event.key.toLowerCase();
  if (event.shiftKey && key === "o") {
    event.preventDefault();
    location.assign("/");
  } else if (!event.shiftKey && key === "k") {
    event.preventDefault();
    find();
  }
});
