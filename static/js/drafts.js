// What was written and not sent yet: kept in this browser, per conversation, until it is sent or the person signs out.

import { store } from "./storage.js";

const PREFIX = "chat:";
const OWNER = "chat:owner";
const BEGINNING = "chat:beginning"; // a new chat whose answer has not come: { id, content, model }
const WAIT_MS = 300;

const local = store("localStorage");
const session = store("sessionStorage"); // of this tab
let timer = null;
let held = false; // the box is empty, but what was in it is not sent yet
let leaving = false; // signing out

const form = () => document.getElementById("composer");
const text = () => document.getElementById("composer-text");
const key = (place) => `${PREFIX}draft:${place}`;

export const placeOf = (composer) => composer?.dataset.conversation ?? "new";

// A tab that slept while somebody else signed in writes nothing into what is theirs.
function put(area, name, value) {
  if (area.get(OWNER) === form()?.dataset.owner) area.set(name, value);
}

function read(area, name) {
  try {
    return JSON.parse(area.get(name));
  } catch {
    return null; // not what was written here
  }
}

export function forget(place) {
  clearTimeout(timer);
  put(local, key(place), "");
}

export function keep() {
  clearTimeout(timer);
  if (text() && !held && !leaving) put(local, key(placeOf(form())), text().value);
}

export function hold() {
  keep();
  held = true;
}

export function release() {
  held = false;
  keep();
}

export const readBeginning = () => read(local, BEGINNING);
export const keepBeginning = (beginning) => put(local, BEGINNING, beginning && JSON.stringify(beginning));

// Of this tab: messages that were sent and not confirmed.
export const readSent = (place) => read(session, `${PREFIX}sent:${place}`) ?? [];
export const keepSent = (place, list) =>
  put(session, `${PREFIX}sent:${place}`, list.length ? JSON.stringify(list) : "");

let restored = null;

// Puts the draft into a box that is new on the page.
export function restore() {
  const composer = form();
  if (!composer || composer === restored) return;
  restored = composer;
  const { owner } = composer.dataset;
  for (const area of [local, session]) {
    if (area.get(OWNER) === owner) continue;
    area.clear(PREFIX); // somebody else was here before
    area.set(OWNER, owner);
  }
  const draft = local.get(key(placeOf(composer)));
  if (!draft || text().value) return;
  text().value = draft;
  text().dispatchEvent(new Event("input", { bubbles: true }));
}

document.addEventListener("input", (event) => {
  if (event.target !== text()) return;
  clearTimeout(timer);
  timer = setTimeout(keep, WAIT_MS);
});
document.addEventListener("visibilitychange", () => document.hidden && keep());
window.addEventListener("pagehide", keep);

// On a shared computer nothing stays behind, in other tabs neither.
document.addEventListener("submit", (event) => {
  if (!event.target.getAttribute("action")?.endsWith("/logout/")) return;
  leaving = true;
  clearTimeout(timer);
  local.clear(PREFIX);
  session.clear(PREFIX);
});
window.addEventListener("storage", (event) => {
  if (event.key === OWNER && event.newValue !== form()?.dataset.owner) session.clear(PREFIX);
});
