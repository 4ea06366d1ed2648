// Messages on their way: each is in the thread at once, and stays there until the server has it or has said why not. The id is
// made here; with it a message can be sent again after a lost connection and is still written once.

import { countdown } from "./countdown.js";
import { keepSent, placeOf, readSent } from "./drafts.js";
import { transmit } from "./socket.js";

const TOO_MANY = 4429, TOO_BIG = 1009, GONE = 4404, SIGNED_OUT = 4401;
const CLOSED = {
  [TOO_MANY]: "Too many messages at once.",
  [TOO_BIG]: "The message is too large.",
  [GONE]: "The conversation was deleted.",
};

const IN_DOUBT = "idempotency_in_flight";
const RESEND_MS = 500, MAX_RESEND_MS = 30_000; // after the first repetition, twice as long each time
const BUSY = "A reply is running. Stop it first, or wait.";
const ON_ITS_WAY = "Your last message is not confirmed yet. Wait for it.";

const form = () => document.getElementById("composer");
const place = () => placeOf(form());
let shown = null; // the conversation that `messages` belong to
let messages = new Map(); // id -> { id, content, model, edits, refusal, state, sent, tries }

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is not there on a plain http address
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

const kept = ({ id, content, model, edits, refusal }) => ({ id, content, model, edits, refusal });
const keep = () => keepSent(place(), [...messages.values()].map(kept));

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

function button(text, act) {
  const element = make("button", "quiet", text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

function linkTo(address, text) {
  const element = make("a", "", text);
  element.href = address;
  return element;
}

export function bubble(id, content) {
  const article = make("article", "turn user sending");
  article.id = `sending-${id}`;
  const foot = make("div", "foot");
  article.append(make("h2", "visually-hidden", "You"), make("div", "bubble", content), foot);
  return article;
}

// Behind the thread, so that neither what is added to it nor a new one moves or removes them.
export function shelf() {
  const found = document.getElementById("outgoing");
  if (found) return found;
  const box = make("div", "outgoing");
  box.id = "outgoing";
  document.getElementById("thread").after(box);
  return box;
}

const articleOf = ({ id }) => document.getElementById(`sending-${id}`);

// What an edited message will replace is not shown meanwhile.
function supersede() {
  const edited = [...messages.values()].map(({ edits }) => edits && document.getElementById(edits)).filter(Boolean);
  let gone = false;
  for (const turn of document.querySelectorAll("#thread > .turn")) {
    gone ||= edited.includes(turn);
    turn.classList.toggle("superseded", gone);
  }
}

function show(message) {
  if (!articleOf(message)) shelf().append(bubble(message.id, message.content));
  supersede();
}

function say(message, ...parts) {
  const article = articleOf(message);
  if (!article) return;
  article.classList.toggle("sending", message.state === "sending");
  article.querySelector(".foot").replaceChildren(...parts);
}

function remove(message) {
  messages.delete(message.id);
  articleOf(message)?.remove();
  supersede();
  keep();
}

// Kept with the message: one that was refused is sent by nobody but a person, on a page that is loaded anew neither.
function fail(message, reason, { seconds = null, outcome = "Not sent.", usage = "", smaller = null } = {}) {
  message.state = "failed";
  message.refusal = { reason, outcome, usage, smaller, until: seconds ? Date.now() + 1000 * seconds : 0 };
  keep();
  explain(message);
}

function explain(message) {
  const { reason, outcome, usage, smaller, until } = message.refusal;
  const seconds = Math.ceil((until - Date.now()) / 1000);
  const retry = button("Retry", () => deliver(message));
  const line = make("span", "failure");
  line.setAttribute("role", "alert");
  line.append(make("span", "why", outcome), ` ${reason} `);
  if (usage) line.append(linkTo(usage, "See your usage"), " ");
  if (seconds > 0) {
    retry.disabled = true;
    const wait = countdown(seconds);
    wait.addEventListener("chat:countdown", () => (retry.disabled = false));
    line.append(wait);
  }
  const ways = make("span", "ways");
  ways.append(retry);
  if (smaller) ways.append(button(`Use ${smaller.title} instead`, () => deliver(message, smaller.name)));
  ways.append(button("Edit", () => takeBack(message)));
  say(message, line, ways);
}

function takeBack(message) {
  remove(message);
  const detail = { content: message.content, edits: message.edits };
  document.dispatchEvent(new CustomEvent("chat:takeback", { detail }));
}

function deliver(message, instead = null) {
  clearTimeout(message.timer);
  if (instead) message.model = instead;
  message.state = "sending";
  if (message.refusal) {
    message.refusal = null;
    keep();
  }
  const { id, content, model, edits } = message;
  if (!transmit({ type: "send", id, content, model, edits })) return wait(message);
  message.sent = true;
  message.tries += 1;
  say(message);
}

// What the server may have is not taken back: it would be written twice.
function wait(message) {
  const words = message.sent
    ? "It is not known yet whether this was sent. It goes out again when the connection is back, and is written once."
    : "Not sent yet. It goes out when the connection is back.";
  const taken = message.sent ? [] : [button("Edit", () => takeBack(message))];
  say(message, make("span", "", words), ...taken);
}

export const replying = () => document.getElementById("composer-action")?.type === "button"; // it says Stop
const sending = () => [...messages.values()].some(({ state }) => state === "sending");
export const busy = () => (replying() && BUSY) || (sending() && ON_ITS_WAY) || ""; // why nothing can be sent now

export function send({ content, model, edits = null }) {
  const message = { id: newId(), content, model, edits, state: "sending", sent: false, tries: 0 };
  messages.set(message.id, message);
  show(message);
  keep();
  deliver(message);
  document.dispatchEvent(new CustomEvent("chat:sent"));
}

// After a reload, and on the page of another conversation.
export function restore() {
  const composer = form();
  if (!composer || shown === composer) return;
  shown = composer;
  for (const { timer } of messages.values()) clearTimeout(timer); // those of another conversation do not go out to this one
  const found = composer.dataset.conversation ? readSent(place()) : [];
  messages = new Map();
  for (const each of found) {
    const state = each.refusal ? "failed" : "sending";
    const message = { ...each, state, sent: !each.refusal?.outcome, tries: 0 };
    messages.set(each.id, message);
    show(message);
    if (message.refusal) explain(message);
    else wait(message);
  }
}

document.addEventListener("chat:connected", () => {
  for (const message of messages.values()) {
    if (message.state !== "sending") continue;
    const pause = message.tries < 2 ? 0 : Math.min(RESEND_MS * 2 ** (message.tries - 2), MAX_RESEND_MS);
    if (!pause) deliver(message);
    else message.timer = setTimeout(deliver, pause, message); // perhaps it is this message that breaks the connection
  }
});

document.addEventListener("chat:closed", ({ detail: { code } }) => {
  if (code === SIGNED_OUT) return; // after signing in again it is sent
  for (const message of messages.values()) {
    if (message.state !== "sending") continue;
    clearTimeout(message.timer);
    if (CLOSED[code]) fail(message, CLOSED[code]);
    else wait(message);
  }
});

document.addEventListener("chat:accepted", ({ detail: { id } }) => {
  const message = messages.get(id);
  if (message) remove(message);
});

document.addEventListener("chat:refused", ({ detail: { id, code, message: reason, retry_after, usage, smaller } }) => {
  const message = messages.get(id);
  if (!message) return;
  message.sent = code === IN_DOUBT; // else the server has said that it does not have it
  fail(message, reason, { seconds: retry_after, outcome: message.sent ? "" : "Not sent.", usage, smaller });
});

document.addEventListener("htmx:ws:after:message:incoming", () => messages.size && supersede());
