// The message box: Enter sends, the box is empty at once, and nothing that was written is lost or sent twice.

import { countdown } from "./countdown.js";
import { forget, hold, keepBeginning, placeOf, readBeginning, release, restore } from "./drafts.js";
import { say, unsay } from "./notice.js";
import * as outgoing from "./outgoing.js";
import "./seen.js";
import "./turns.js";

const GONE = 4404;
const MAX_BYTES = 256 * 1024; // as conversations.services.MAX_CONTENT_BYTES

const text = () => document.getElementById("composer-text");
const form = () => document.getElementById("composer");
const notice = () => document.getElementById("notice");
const live = () => Boolean(form().dataset.conversation);
const count = new Intl.NumberFormat("en");
let beginning = null; // the text of a new chat that is being begun

document.addEventListener("htmx:ws:after:message:incoming", () => outgoing.busy() || unsay("calm"));

// Sending

function tooLarge() {
  const { value } = text();
  if (value.length * 3 <= MAX_BYTES) return ""; // no character takes more
  const bytes = new TextEncoder().encode(value).length;
  if (bytes <= MAX_BYTES) return "";
  return `This is ${count.format(Math.ceil(bytes / 1024))} KB, and a message may have ${MAX_BYTES / 1024} KB. Shorten it to send it.`;
}

// null: go on. Empty: do nothing.
function obstacle() {
  if (beginning !== null || text().readOnly || !text().value.trim()) return "";
  return outgoing.busy() || null;
}

document.addEventListener("keydown", (event) => {
  if (event.target !== text() || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  if (matchMedia("(pointer: coarse)").matches) return; // a phone's Enter breaks the line
  event.preventDefault();
  form().requestSubmit();
});

function empty() {
  text().value = "";
  grow();
  forget(placeOf(form()));
}

// Ahead of htmx, which listens on the form itself.
document.addEventListener(
  "submit",
  (event) => {
    if (event.target !== form()) return;
    const size = tooLarge();
    const why = size || obstacle();
    if (why !== null || live()) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
    if (size) say(size, "size");
    else if (why) say(why, "calm");
    else if (why === null && live()) {
      say("");
      outgoing.send({ content: text().value, model: new FormData(form()).get("model") });
      empty();
    }
  },
  true,
);

document.addEventListener("chat:takeback", ({ detail: { content, edits } }) => {
  if (edits && document.getElementById(edits)) return; // it is edited there
  text().value = text().value.trim() ? `${content}\n\n${text().value}` : content;
  text().dispatchEvent(new Event("input", { bubbles: true }));
  text().focus();
});

// A new chat goes by htmx: its page comes back, or the reason why not. With its id the same text can be sent again after a
// lost answer, and still begins one conversation.

const DOUBT = "It is not known whether this was sent. Sending again is safe.";
let begun = null; // { id, content, model, doubtful: an answer to it was lost }

// As a value of the request: a field of that name would take the place of the form's own `id`.
document.addEventListener("htmx:config:request", (event) => {
  const { sourceElement, request } = event.detail.ctx;
  if (sourceElement !== form() || live()) return;
  const content = text().value;
  const model = request.body.get("model");
  if (begun?.content !== content || begun.model !== model) begun = { id: outgoing.newId(), content, model };
  keepBeginning(begun);
  request.body.set("id", begun.id);
});

function recall() {
  if (live()) return;
  begun = readBeginning();
  if (begun) begun.doubtful = true;
  if (begun && text().value === begun.content) say(DOUBT, "warning");
}

function begin() {
  hold();
  beginning = text().value;
  form().setAttribute("aria-busy", "true");
  say("");
  document.querySelector(".greeting").hidden = true;
  const column = document.createElement("div");
  column.className = "column beginning";
  const thread = document.createElement("div");
  thread.className = "thread";
  thread.append(outgoing.bubble("new", beginning));
  column.append(thread);
  document.getElementById("scroll").append(column);
  text().value = "";
  grow();
}

const LONGEST_COUNTDOWN = 900; // s; who has to wait longer does not sit and wait
let chosen = null; // the model that was chosen, while another one is asked in its place
const AGAIN = / ?Try again in \d+ s\.\s*$/;

function refused(seconds) {
  if (chosen) chosen.checked = true;
  chosen = null;
  document.querySelector(".beginning")?.remove();
  document.querySelector(".greeting").hidden = false;
  form().removeAttribute("aria-busy");
  text().value = beginning;
  grow();
  text().focus();
  if (!notice().textContent.trim()) {
    begun.doubtful = true;
    say(DOUBT, "warning");
  }
  const words = notice().querySelector(".detail") ?? notice();
  const offer = words.querySelector("[data-smaller]");
  offer?.remove();
  if (seconds && seconds <= LONGEST_COUNTDOWN) {
    words.normalize();
    const last = words.lastChild; // behind a link, where there is one
    if (last) last.textContent = last.textContent.replace(AGAIN, " ");
    words.append(countdown(seconds));
  }
  if (!offer) return;
  offer.hidden = false;
  words.append(" ", offer);
}

// The same message to the model that would reply now. For this once: it is no choice for what comes later.
document.addEventListener("click", ({ target }) => {
  const offer = target.closest?.("#notice [data-smaller]");
  const choices = [...document.querySelectorAll("#model-list input")];
  const smaller = offer && choices.find(({ value }) => value === offer.dataset.smaller);
  if (!smaller || obstacle() !== null) return;
  chosen = choices.find(({ checked }) => checked) ?? null;
  smaller.checked = true;
  form().requestSubmit();
});

let waitSeconds = 0;

document.addEventListener("htmx:before:request", (event) => {
  if (event.detail.ctx.sourceElement === form() && !live()) begin();
});

document.addEventListener("htmx:after:request", (event) => {
  if (beginning === null || event.detail.ctx.sourceElement !== form()) return;
  const { status, headers } = event.detail.ctx.response;
  waitSeconds = Number(headers.get("Retry-After"));
  if (status < 400) {
    forget("new");
    begun = null;
  }
  if (status < 500 && !begun?.doubtful) keepBeginning(null); // it is known what became of it
});

document.addEventListener("htmx:finally:request", (event) => {
  if (beginning === null) return;
  const same = form().hasAttribute("aria-busy");
  if (same && event.detail.ctx.sourceElement !== form()) return; // another request of the page
  if (same) refused(waitSeconds);
  beginning = null;
  waitSeconds = 0;
  release();
});

// The wait is over, and so are the figures that were shown with it. (Those of a conversation come by its socket.)
document.addEventListener("chat:countdown", () => {
  if (!live()) htmx.ajax("GET", "/", { target: "#meters", swap: "outerHTML", select: "#meters" });
});

// A conversation that was deleted takes no more messages; what was written can still be copied.
document.addEventListener("chat:closed", ({ detail: { code } }) => {
  if (code !== GONE) return;
  text().readOnly = true;
  const action = document.getElementById("composer-action");
  if (outgoing.replying()) action.remove(); // nothing is left to stop
  else action.disabled = true;
  for (const turn of document.querySelectorAll('#thread > .turn[aria-busy="true"]')) {
    turn.removeAttribute("aria-busy");
    turn.querySelector(":scope > .foot")?.replaceChildren();
  }
});

// The second click of a double click asks for no second reply, and "a reply is running" is said only for as long as it is true.
document.addEventListener(
  "click",
  (event) => {
    if (event.detail < 2 || !event.target.closest?.("#thread .of-last")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  },
  true,
);

document.addEventListener("chat:refused", ({ detail: { id, code, message } }) => {
  if (!id && code === "reply_running") say(message, "calm");
});

// The box

function grow() {
  if (CSS.supports("field-sizing", "content") || !text()) return;
  text().style.height = "auto";
  text().style.height = `${text().scrollHeight}px`;
}

document.addEventListener("input", (event) => {
  if (event.target !== text()) return;
  grow();
  const size = tooLarge();
  if (size) say(size, "size");
  else unsay("size", "calm", "warning");
});

document.addEventListener("click", (event) => {
  const starter = event.target.closest?.("[data-starter]");
  if (!starter) return;
  text().value = starter.textContent.trim();
  text().dispatchEvent(new Event("input", { bubbles: true }));
  text().focus();
});

// A page that htmx has put in has a box of its own.
function arrive() {
  restore();
  recall();
  outgoing.restore();
}

arrive();
new MutationObserver(arrive).observe(document.querySelector(".frame"), { childList: true });

// A finished reply was read out; it must not be found twice in the page.
const announcer = document.getElementById("announcer");
new MutationObserver(() => {
  if (announcer.textContent) setTimeout(() => announcer.replaceChildren(), 10_000);
}).observe(announcer, { childList: true });
