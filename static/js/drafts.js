// What was written and not sent yet: kept in this browser, per conversation, until it is sent or the person signs out.

const PREFIX = "chat:";
const OWNER = "chat:owner";
const WAIT_MS = 300;

let timer = null;
let held = false; // the box is empty, but what was in it is not sent yet
let leaving = false; // signing out

const form = () => document.getElementById("composer");
const text = () => document.getElementById("composer-text");
const key = (place) => `${PREFIX}draft:${place}`;

export const placeOf = (composer) => composer?.dataset.conversation ?? "new";

function put(store, name, value) {
  try {
    if (value) store.setItem(name, value);
    else store.removeItem(name);
  } catch (error) {
    console.warn("The draft is not kept", error); // storage is full, or switched off
  }
}

export function clearAll() {
  for (const store of [localStorage, sessionStorage]) {
    Object.keys(store)
      .filter((name) => name.startsWith(PREFIX))
      .forEach((name) => store.removeItem(name));
  }
}

export function forget(place) {
  clearTimeout(timer);
  put(localStorage, key(place), "");
}

export function keep() {
  clearTimeout(timer);
  if (text() && !held && !leaving) put(localStorage, key(placeOf(form())), text().value);
}

export function hold() {
  keep();
  held = true;
}

export function release() {
  held = false;
  keep();
}

// Of this tab: messages that were sent and not confirmed.
export const readSent = (place) => JSON.parse(sessionStorage.getItem(`${PREFIX}sent:${place}`) ?? "[]");
export const keepSent = (place, list) =>
  put(sessionStorage, `${PREFIX}sent:${place}`, list.length ? JSON.stringify(list) : "");

let restored = null;

// Puts the draft into a box that is new on the page.
export function restore() {
  const composer = form();
  if (!composer || composer === restored) return;
  restored = composer;
  const { owner } = composer.dataset;
  if (localStorage.getItem(OWNER) !== owner) {
    clearAll(); // somebody else was here before
    put(localStorage, OWNER, owner);
  }
  const draft = localStorage.getItem(key(placeOf(composer)));
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

// On a shared computer nothing stays behind.
document.addEventListener("submit", (event) => {
  if (!event.target.getAttribute("action")?.endsWith("/logout/")) return;
  leaving = true;
  clearTimeout(timer);
  clearAll();
});
